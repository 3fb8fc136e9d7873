#!/usr/bin/env python3
"""Asks a running peer and compares its answers with ONNX Runtime's in this process.

usage: check.py mosec|litserve|triton --model FILE --port PORT
"""
import json
import sys
import urllib.request

import numpy as np

from session import OUTPUTS, ROW, Session, arguments

PATHS = {"mosec": "/inference", "litserve": "/predict", "triton": "/v2/models/zeitnot/infer"}
KSERVE = {"f4": "FP32", "i8": "INT64", "b1": "BOOL"}


def row(generator):
    """A situation of no game, but within the range of every input."""
    one = np.zeros((), ROW)
    one["board"] = generator.random((18, 8, 8)) < 0.1
    one["history"] = generator.integers(1, 4209, 20)
    one["history_mask"] = np.arange(20) >= generator.integers(0, 19)
    one["mover_elo"], one["opponent_elo"] = generator.integers(0, 11, 2)
    one["time_control"] = generator.integers(0, 5)
    one["clock"] = generator.random(2)
    return one.tobytes()


def kserve_header():
    """What stands before a row for Triton: a number of a row is [1, 1], and the row's bytes follow unchanged."""
    inputs = []
    for name in ROW.names:
        base, shape = ROW[name].subdtype or (ROW[name], (1,))
        inputs.append({
            "name": name, "shape": [1, *shape], "datatype": KSERVE[base.str[1:]],
            "parameters": {"binary_data_size": ROW[name].itemsize},
        })
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in OUTPUTS]
    return json.dumps({"inputs": inputs, "outputs": outputs}, separators=(",", ":")).encode()


def ask(peer, port, body):
    headers = {"Content-Type": "application/octet-stream"}
    if peer == "triton":
        before = kserve_header()
        body = before + body
        headers["Inference-Header-Content-Length"] = str(len(before))
    request = urllib.request.Request(f"http://127.0.0.1:{port}{PATHS[peer]}", body, headers)
    with urllib.request.urlopen(request) as response:
        skip = int(response.headers.get("Inference-Header-Content-Length", 0))
        return np.frombuffer(response.read()[skip:], "<f4")


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in PATHS:
        sys.exit(__doc__)
    peer = sys.argv.pop(1)
    options = arguments()
    session = Session(options.model, options.threads)
    generator = np.random.default_rng(1)
    worst = 0.0
    for _ in range(20):
        body = row(generator)
        expected = np.frombuffer(session.answer([body])[0], "<f4")
        worst = max(worst, float(np.abs(ask(peer, options.port, body) - expected).max()))
    print(f"{peer}: 20 answers differ by {worst:.1e} at most")
    sys.exit(worst > 1e-4)
