#!/usr/bin/env python3
"""The reference implementation, the package otter-chess: writes weights for it, and measures it inside its own process.

usage: reference.py weights FILE                        random weights, as the package reads them
       reference.py measure FILE SITUATIONS SECONDS     one caller that asks again as soon as it is answered

SITUATIONS holds a JSON object a line: fen of the position to predict in, moves (UCI) that led to it from the standard
start, mover_rating, opponent_rating, and initial, increment and mover_remaining in seconds.
"""
import itertools
import json
import os
import sys
import time

import numpy as np

# As the package comes: this project's commands have libgomp's threads sleep at once, which costs torch 7%.
os.environ.pop("OMP_WAIT_POLICY", None)
import torch
from otter_chess import OtterModel
from otter_chess.model import StrongPolicyModel
from safetensors.torch import save_file


def weights(file):
    """Random, since speed does not depend on them; always the same."""
    torch.manual_seed(1)
    save_file(StrongPolicyModel().state_dict(), file)


def question(line):
    """What predict() takes, all of its inputs; it has no form for several positions at once."""
    situation = json.loads(line)
    return {
        "fen": situation["fen"],
        "history_moves": situation["moves"],
        "player_elo": situation["mover_rating"],
        "opponent_elo": situation["opponent_rating"],
        "time_control": f"{situation['initial']}+{situation['increment']}",
        "time_remaining": situation["mover_remaining"],
    }


def memory_mib():
    """As the servers are measured: what this process has of its own, and its share of the rest."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def measure(file, situations, seconds):
    torch.set_num_threads(2)
    model = OtterModel(file)
    with open(situations, encoding="utf-8") as lines:
        questions = [question(line) for line in lines]
    for one in questions[:10]:
        model.predict(**one)
    taken = []
    start = now = time.perf_counter()
    for one in itertools.cycle(questions):
        model.predict(**one)
        before, now = now, time.perf_counter()
        taken.append(1000 * (now - before))
        if now - start >= float(seconds):
            break
    median, p99 = np.percentile(taken, [50, 99])
    print(json.dumps({
        "positions_per_second": len(taken) / (now - start),
        "median_ms": median,
        "p99_ms": p99,
        "rss_mib": memory_mib(),
        "batch": 1,
    }))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["weights", file]:
            weights(file)
        case ["measure", file, situations, seconds]:
            measure(file, situations, seconds)
        case _:
            sys.exit(__doc__)
