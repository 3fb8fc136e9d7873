#!/usr/bin/env python3
"""Writes docs/studies/reranker.md and its picture from the JSON files of scripts/rerank-study.sh."""
import json
import pathlib

STUDIES = pathlib.Path(__file__).parent.parent / "docs" / "studies"
SEEDS = (1, 2, 3)
ENGINES = {"stockfish": "Stockfish 15.1", "ethereal": "Ethereal 12.00"}


def read(name):
    return json.loads((STUDIES / f"reranker-{name}.json").read_text())


def find(report, name):
    return next(one for one in report["rerankers"] if one["name"] == name)


def gain(row):
    low, high = row["gain_ci"]
    return f"{row['gain']:.2f}% ({low:.2f} to {high:.2f})"


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def pairs():
    """Every seed and engine: with and without the engine on identical data and seeds."""
    rows = []
    for engine, title in ENGINES.items():
        for seed in SEEDS:
            report = read(f"pair-{engine}-{seed}")
            free, own = find(report, "free"), find(report, engine)
            rows.append([
                f"{title}, seed {seed}", f"{own['overall']['n']:,}", f"{own['overall']['prior_nll']:.4f}",
                f"{free['overall']['nll']:.4f}", f"{own['overall']['nll']:.4f}",
                gain(own["overall"]), f"**{gain(own['over_first'])}**",
            ])
    return table(["engine, seed", "n", "NLL prior", "search-free", "with engine", "gain over the prior",
                  "gain over search-free"], rows)


def families():
    """Trained by one engine, judged with another's evidence; mean of the seeds, interval of the first."""
    rows = []
    for judge, title in ENGINES.items():
        for trained, name in ENGINES.items():
            gains = [find(read(f"pair-{judge}-{seed}"), trained)["overall"] for seed in SEEDS]
            mean = sum(one["gain"] for one in gains) / len(gains)
            spread = max(one["gain"] for one in gains) - min(one["gain"] for one in gains)
            rows.append([name, title, f"{mean:.2f}%", f"{spread:.2f}", gain(gains[0])])
    return table(["trained on", "evidence of", "gain over the prior, mean of the seeds", "spread of the seeds",
                  "seed 1 (95% interval)"], rows)


def depths():
    rows = []
    names = ("trained at 4", "trained at 8", "trained at 2, 4, 6, 8")
    for depth in (2, 4, 6, 8, 10):
        report = read(f"depth-{depth}")
        rows.append([depth, f"{report['nodes']:,.0f}"] + [gain(find(report, name)["overall"]) for name in names])
    return table(["judged at depth", "mean nodes"] + [f"gain, {name}" for name in names], rows)


def slices(report, name):
    rows = []
    for kind, parts in find(report, name)["slices"].items():
        for part, row in parts.items():
            hidden = find(report, f"{name}, engine hidden")["slices"][kind][part]
            rows.append([f"{kind}: {part}", f"{row['n']:,}", row["players"], f"{row['prior_nll']:.3f}", f"{row['nll']:.3f}",
                         gain(row), gain(hidden)])
    return table(["slice", "n", "players", "NLL prior", "NLL", "gain", "gain, engine hidden"], rows)


def accuracy(report, name):
    row = find(report, name)["overall"]
    return f"top-1 {row['prior_top1']:.2f}% → {row['top1']:.2f}%, n = {row['n']:,}, {row['players']} players"


def frontier(figures):
    rows = [[f"fixed depth {point['depth']}", f"{point['nodes']:,.0f}", f"{point['nll']:.4f}", "", ""]
            for point in figures["fixed"]]
    shown = []
    for point in figures["chosen"]:
        if not shown or abs(point["nodes"] - shown[-1]["nodes"]) > 0.12 * figures["fixed"][-1]["nodes"]:
            shown.append(point)
    for point in shown:
        rows.append([f"chosen at {point['price']:.3g} nats a million nodes", f"{point['nodes']:,.0f}", f"{point['nll']:.4f}",
                     f"{point['mixture']:.4f}", f"{1000 * (point['mixture'] - point['nll']):+.1f}"])
    return table(["", "mean nodes", "NLL", "mixture of fixed depths, same nodes", "better by, millinats"], rows)


def identity(report):
    row = find(report, "served, styles")["identity"]
    if row is None:
        return "No held-out player has a style."
    return (f"Held-out decisions of players who have a style, which was learnt with the re-ranker: own style over generic "
            f"player {gain(row)}, n = {row['n']:,}, {row['players']} players.")


def verdict():
    rows = [find(read(f"pair-{engine}-{seed}"), engine)["over_first"] for engine in ENGINES for seed in SEEDS]
    sure = sum(row["gain_ci"][0] > 0 for row in rows)
    return (f"In {sure} of {len(rows)} pairs of engine and seed the whole 95% interval of the gain over the search-free twin "
            f"is above zero.")


def main():
    text = (STUDIES / "reranker.in.md").read_text()
    served, allocation = read("served"), read("allocation")
    errors = served["rerankers"]
    parts = {
        "pairs": pairs(), "families": families(), "depths": depths(), "slices": slices(served, "served"),
        "accuracy": accuracy(served, "served"), "frontier": frontier(allocation), "identity": identity(served),
        "verdict": verdict(), "coverage": f"{served['coverage']:.2f}%",
        "mass": f"{max(one['mass_error'] for one in errors):.1e}", "rest": f"{max(one['rest_error'] for one in errors):.1e}",
        "fitted": f"{allocation['fitted']:,}", "measured": f"{allocation['n']:,}",
        "correlation": ", ".join(f"depth {depth}: {value:.2f}" for depth, value in allocation["correlation"]),
        "served_gain": gain(find(served, "served")["overall"]),
        "hidden_gain": gain(find(served, "served, engine hidden")["overall"]),
    }
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part)
    if "{{" in text:
        raise SystemExit(f"rerank_study: reranker.in.md names an unknown part: {text[text.index('{{'):][:40]}")
    (STUDIES / "reranker.md").write_text("<!-- Written by scripts/rerank_study.py from reranker.in.md; edit that. -->\n" + text)


if __name__ == "__main__":
    main()
