#!/usr/bin/env bash
# Measures the server beside its peers, all on one network with the same weights; docs/benchmarks/peers.json.
# BENCH_ROUNDS (3) and BENCH_SECONDS (10, of each step) make it shorter or longer.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/peers/setup.sh
work=target/peers
mkdir -p "$work"
export ORT_DISABLE_TELEMETRY=1
if [ ! -f "$work/reference.onnx" ]; then
  .native/peers/bin/python scripts/peers/reference.py weights "$work/reference.safetensors"
  cargo run --release -p zeitnot-trainer -- import otter "$work/reference.safetensors" --out "$work/reference.onnx"
fi
cargo bench --profile release -p zeitnot-server --bench peers
