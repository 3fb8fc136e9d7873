#!/usr/bin/env python3
"""Trains variants of a recipe in short runs of equal budget and writes what each reached as a table.

Every variant of one seed and batch size sees the same decisions in the same order, each once, so its figures over the
last steps are on decisions it had not learnt yet, and differences are paired. Runs that are finished are not repeated.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

STEPS, LAST = 400, 150

# Each variant changes lines of the recipe: key = value.
VARIANTS = {
    "base": {},
    "base, another seed": {"seed": 2},
    "48 channels": {"width": 48},
    "96 channels": {"width": 96},
    "2 blocks": {"blocks": 2},
    "6 blocks": {"blocks": 6},
    "no move planes": {"move_planes": 0},
    "20 move planes": {"move_planes": 20},
    "no move tokens": {"move_tokens": 0},
    "pooled policy head": {"policy": '{ kind = "pooled", hidden = 256 }'},
    "AdamW 4e-3": {"algorithm": '"adamw"', "learning_rate": "4e-3"},
    "AdamW 8e-3": {"algorithm": '"adamw"', "learning_rate": "8e-3"},
    "Muon 4e-3": {"learning_rate": "4e-3"},
    "Muon 16e-3": {"learning_rate": "16e-3"},
    "Muon 32e-3": {"learning_rate": "32e-3"},
    "batch of 128": {"batch_size": 128, "steps": 2},
    "batch of 512": {"batch_size": 512, "steps": 0.5},
    "taught, share 0.5": {"teacher": 0.5},
    "taught, share 0.9": {"teacher": 0.9},
}


def recipe(text, changes):
    """The recipe with changed values; its run is as short as the comparison needs and has no finishing phase."""
    steps = int(STEPS * changes.get("steps", 1))
    changes = {**changes, "steps": steps, "finish": 0.0, "checkpoint_every": 1000000, "log_every": max(1, steps // 80)}
    for key, value in changes.items():
        text, found = re.subn(rf"\b{key} = (\{{[^}}]*\}}|[^,}}\n]+)", f"{key} = {value}", text, count=1)
        if not found:
            sys.exit(f"the recipe has no line `{key} = ...` to change")
    return text


def train(name, text, shards, out, teachers):
    """Runs a variant unless it is finished; gives its lines of metrics."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())
    run = out / slug
    config = out / f"{slug}.toml"
    if config.exists() and config.read_text() != text and run.exists():
        sys.exit(f"{run} is of another recipe; remove it to run the variant again")
    config.write_text(text)
    metrics = run / "metrics.jsonl"
    steps = int(re.search(r"\bsteps = (\d+)", text).group(1))
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    if not lines or json.loads(lines[-1])["step"] < steps:
        binary = os.environ.get("ZEITNOT_TRAIN", "target/release/zeitnot-train")
        command = [binary, "train", "--config", config, "--data", shards, "--out", run, "--resume"]
        command += [part for teacher in teachers for part in ("--teacher", teacher)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = metrics.read_text().splitlines()
    return [json.loads(line) for line in lines]


def figures(lines):
    """Means over the last part of a run."""
    end = lines[-1]["positions"]
    late = [line for line in lines if line["positions"] > end * (1 - LAST / STEPS)]
    mean = lambda key: sum(line[key] for line in late) / len(late)
    return {"positions": end, "top1": mean("accuracy"), "nll": mean("policy_loss")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("shards")
    parser.add_argument("out", type=pathlib.Path, help="folder for the runs and choices.json")
    parser.add_argument("--maia", type=pathlib.Path, required=True, help="folder of maia-1100.onnx to maia-1900.onnx")
    parser.add_argument("variants", nargs="*", help="names of variants; all when none is given")
    options = parser.parse_args()
    text = options.recipe.read_text()
    options.out.mkdir(parents=True, exist_ok=True)
    maia = [f"{rating}={options.maia}/maia-{rating}.onnx" for rating in range(1100, 2000, 100)]
    results = {}
    for name in options.variants or VARIANTS:
        changes = VARIANTS[name]
        teachers = maia if "teacher" in changes else []
        row = results[name] = figures(train(name, recipe(text, changes), options.shards, options.out, teachers))
        print(f"{name:22} top-1 {row['top1']:.2f}%  nll {row['nll']:.3f}", flush=True)
    (options.out / "choices.json").write_text(json.dumps({"steps": STEPS, "last": LAST, "variants": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
