#!/usr/bin/env python3
"""Writes docs/studies/README.md and its picture from the JSON files of scripts/study.sh.

usage: study.py FOLDER EVALUATION_OF_THE_DEFAULT
"""
import json
import pathlib
import sys

BRACKETS = ["<1100"] + [f"{low}-{low + 99}" for low in range(1100, 2000, 100)] + [">=2000"]


def figures(name, row):
    low, high = row["top1_ci"]
    return f"| {name} | {row['n']:,} | {row['top1']:.2f}% | {low:.2f} - {high:.2f} | {row['top5']:.2f}% | {row['nll']:.3f} | {row['ece']:.2f} |"


def table(rows, first="model"):
    head = [f"| {first} | n | top-1 | 95% interval | top-5 | NLL (nats) | calibration error |", "|---|---:|---:|---:|---:|---:|---:|"]
    return "\n".join(head + [figures(name, row) for name, row in rows]) + "\n"


def maia_rows(models):
    """By bracket: ours, the Maia network of the bracket, and the best Maia network there."""
    ours, maia = models[0], models[1:]
    rows = []
    for place, bracket in enumerate(BRACKETS):
        if bracket not in ours["by_rating"]:
            continue
        nearest = maia[min(max(place - 1, 0), len(maia) - 1)]
        best = max(maia, key=lambda model: model["by_rating"][bracket]["top1"])
        rows.append((bracket, ours["by_rating"][bracket], nearest, best))
    return rows


def maia_table(rows):
    lines = ["| mover's rating | n | zeitnot | nearest Maia-1 | best Maia-1 |", "|---|---:|---:|---:|---:|"]
    cell = lambda row: f"{row['top1']:.2f}% ({row['top1_ci'][0]:.2f} - {row['top1_ci'][1]:.2f}), {row['nll']:.3f}"
    for bracket, ours, nearest, best in rows:
        theirs = [f"{model['name'].removeprefix('maia-')}: {cell(model['by_rating'][bracket])}" for model in (nearest, best)]
        lines.append(f"| {bracket} | {ours['n']:,} | {cell(ours)} | {theirs[0]} | {theirs[1]} |")
    return "\n".join(lines) + "\n"


def picture(rows):
    """Top-1 by bracket as SVG."""
    width, height, left, top = 860, 320, 60, 30
    series = [
        ("zeitnot", "#1b6ca8", [ours["top1"] for _, ours, _, _ in rows]),
        ("nearest Maia-1", "#d1495b", [near["by_rating"][b]["top1"] for b, _, near, _ in rows]),
        ("best Maia-1", "#6a994e", [best["by_rating"][b]["top1"] for b, _, _, best in rows]),
    ]
    values = [value for _, _, line in series for value in line]
    low, high = min(values) - 1, max(values) + 1
    x = lambda place: left + place * (width - left - 140) / max(len(rows) - 1, 1)
    y = lambda value: top + (high - value) * (height - top - 50) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="18" font-size="15">top-1 (%) by the mover\'s rating</text>']
    for percent in range(int(low) + 1, int(high) + 1, 2):
        parts.append(f'<line x1="{left}" x2="{width - 140}" y1="{y(percent):.1f}" y2="{y(percent):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 28}" y="{y(percent) + 4:.1f}">{percent}</text>')
    for place, row in enumerate(rows):
        parts.append(f'<text x="{x(place) - 26:.1f}" y="{height - 20}">{row[0].replace("<", "&lt;").replace(">", "&gt;")}</text>')
    for number, (name, color, line) in enumerate(series):
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 125}" y="{top + 20 + 18 * number}" fill="{color}">{name}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def choices_table(choices):
    base = choices["variants"]["base"]
    lines = ["| variant | positions | top-1 | against base | NLL (nats) |", "|---|---:|---:|---:|---:|"]
    for name, row in choices["variants"].items():
        lines.append(f"| {name} | {row['positions']:,} | {row['top1']:.2f}% | {row['top1'] - base['top1']:+.2f} | {row['nll']:.3f} |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    read = lambda name: json.loads((folder / name).read_text())
    variants = {model["name"]: model for model in read("variants.json")["models"]}
    honest, misled = read("honest.json")["models"]
    leak = read("leak.json")["models"][0]
    maia = read("maia.json")["models"]
    default = json.loads(pathlib.Path(sys.argv[2]).read_text())["models"][0]
    calibration = read("calibration.json")
    rows = maia_rows(maia)
    (folder / "maia.svg").write_text(picture(rows))
    named = [(model["name"], model["overall"]) for model in maia]
    trio = ["base", "history", "full"]
    group = lambda key, names: table([(f"{name}: {variant}", variants[variant][key][name]) for name in names for variant in trio if name in variants[variant][key]], "group")
    text = (folder / "README.in.md").read_text()
    before, after, think = calibration["before"], calibration["after"], calibration["think_time"]
    clock_lines = ["| clock left | n | calibration error | at the temperature | actual median | predicted median | within 10-90% |", "|---|---:|---:|---:|---:|---:|---:|"]
    for own in calibration["by_clock"]:
        clock_lines.append(f"| {own['clock']} | {own['n']:,} | {own['ece_before']:.2f} | {own['ece_after']:.2f} | {own['actual_median']:.1f} s | {own['predicted_median']:.1f} s | {own['coverage']:.1f}% |")
    parts = {
        "CHOICES": choices_table(read("choices.json")),
        "VARIANTS": table([(name, variants[name]["overall"]) for name in trio], "variant"),
        "BY_RATING": group("by_rating", BRACKETS),
        "BY_PHASE": group("by_phase", ["ply 0-29", "ply 30-79", "ply 80+"]),
        "HISTORY": table([(f"{length} moves", default["by_history"][length]) for length in ["0", "5", "10", "20"]], "shown"),
        "LEAK": table([("honest clock", honest["overall"]), ("leaked clock, in training and here", leak["overall"]), ("leaked clock in training, honest here", misled["overall"])], "trained with"),
        "LEAK_BY_CLOCK": table([(f"{name}: {label}", row["by_clock"][name]) for name in ["<5%", "5-10%", "10-25%", "25-50%", "50-75%", ">=75%"] for label, row in [("honest", honest), ("leaked", leak)] if name in row["by_clock"]], "clock left"),
        "MAIA": table(named),
        "MAIA_BY_RATING": maia_table(rows),
        "CALIBRATION": f"| | n | NLL (nats) | calibration error |\n|---|---:|---:|---:|\n| as answered | {before['n']:,} | {before['nll']:.4f} | {before['ece']:.2f} |\n| at temperature {calibration['temperature']:.2f} | {after['n']:,} | {after['nll']:.4f} | {after['ece']:.2f} |\n",
        "BY_CLOCK": "\n".join(clock_lines) + "\n",
        "THINK": f"| n | NLL (nats) | NLL of one distribution for all | within 10-90% |\n|---:|---:|---:|---:|\n| {think['n']:,} | {think['nll']:.3f} | {think['nll_of_the_mean']:.3f} | {think['coverage']:.1f}% |\n",
    }
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->\n", part)
    text = text.replace("{fitted}", f"{calibration['fitted_on']:,} decisions")
    (folder / "README.md").write_text(text)


if __name__ == "__main__":
    main()
