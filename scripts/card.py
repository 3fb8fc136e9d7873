#!/usr/bin/env python3
"""Writes models/README.md from models/README.in.md and the evaluations beside it.

usage: card.py FIRST_STEPS SECOND_STEPS KIND, where KIND is int8 or f32
"""
import json
import pathlib
import sys


def row(name, figures):
    low, high = figures["top1_ci"]
    return f"| {name} | {figures['n']:,} | {figures['top1']:.2f}% | {low:.2f} - {high:.2f} | {figures['top5']:.2f}% | {figures['nll']:.3f} | {figures['ece']:.2f} |"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    first, second, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    models = pathlib.Path(__file__).parent.parent / "models"
    read = lambda name: json.loads((models / name).read_text())["models"][0]
    both, rapid, blitz = read("zeitnot.json"), read("zeitnot-rapid.json"), read("zeitnot-blitz.json")
    rows = [("overall", both["overall"]), ("rapid", rapid["overall"]), ("blitz", blitz["overall"])]
    rows += [(name, both["by_phase"][name]) for name in ("ply 0-29", "ply 30-79", "ply 80+")]
    rows += [(f"{length} recent moves shown", both["by_history"][length]) for length in ("0", "5", "10")]
    head = "| | n | top-1 | interval | top-5 | NLL (nats) | calibration error |\n|---|---:|---:|---:|---:|---:|---:|"
    size = (models / "zeitnot.onnx").stat().st_size / 1e6
    text = (models / "README.in.md").read_text().format(
        size=f"{size:.1f} MB",
        kind={"int8": "convolutions in 8 bits", "f32": "f32"}[kind],
        positions=f"{256 * (first + second):,}",
        first=f"{first:,}",
        second=f"{second:,}",
        table="\n".join([head] + [row(name, figures) for name, figures in rows]),
    )
    (models / "README.md").write_text(text)


if __name__ == "__main__":
    main()
