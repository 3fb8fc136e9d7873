#!/usr/bin/env bash
# Trains in slices, each ended by a checkpoint: scripts/slices.sh RECIPE SHARDS OUT [SECONDS [SLICES]].
# On a machine with a GPU and a CUDA build of PyTorch for Python, trains there in half precision; else on the CPU.
# ZEITNOT_TRAIN_ARGS adds options, such as teachers. One slice of 540 seconds by default, counted from the start of the
# training program, so that ten minutes are used to their end; SLICES=0 only builds. Run it again to go on.
# Works for any recipe, zeitnot/1 and otter/1 alike. Shards of `prepare` stay far below 60 MiB each.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 3 ] || { sed -n 2,6p "$0" | cut -c3-; exit 2; }
recipe=$1 shards=$2 out=$3 seconds=${4:-540} slices=${5:-1}
largest=$(find "$shards" -name '*.parquet' -printf '%s\n' | sort -n | tail -n 1)
[ "${largest:-0}" -le $((60 << 20)) ] || { echo "slices: a shard of $shards is larger than 60 MiB, prepare with a smaller --shard-games" >&2; exit 1; }
device=cpu
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  # PyTorch's own libraries, in a build folder of their own.
  torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  unset LIBTORCH
  export LIBTORCH_USE_PYTORCH=1 LD_LIBRARY_PATH="$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/cuda}
  device=cuda
  scripts/setup.sh onnxruntime
else
  scripts/setup.sh onnxruntime libtorch
fi
cargo build --release -p zeitnot-trainer
train=${CARGO_TARGET_DIR:-target}/release/zeitnot-train
export ORT_DYLIB_PATH=${ORT_DYLIB_PATH:-$PWD/.native/onnxruntime/libonnxruntime.so} OMP_WAIT_POLICY=passive
for _ in $(seq "$slices"); do
  "$train" train --config "$recipe" --data "$shards" --out "$out" --resume --device "$device" --stop-after "$seconds" \
    --feed-threads "$(( $(nproc) > 4 ? $(nproc) - 2 : 1 ))" ${ZEITNOT_TRAIN_ARGS:-}
done
