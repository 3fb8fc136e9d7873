#!/usr/bin/env bash
# Makes the embedded model again: scripts/default-model.sh [WORK_FOLDER [MINUTES]]. The first part of the training takes
# MINUTES (60 by default) on two cores, the second half an hour; goes on where it stopped.
# Reads the games and the Maia-1 networks of ../shared; writes models/zeitnot*.
set -euo pipefail
cd "$(dirname "$0")/.."
games=../shared/games
work=${1:-runs/default}
minutes=${2:-60}
for needed in $games ../shared/maia1; do
  [ -d "$needed" ] || { echo "default-model: $needed is not there" >&2; exit 1; }
done
scripts/setup.sh onnxruntime libtorch
cargo build --release -p zeitnot-trainer
export ORT_DYLIB_PATH=$PWD/.native/onnxruntime/libonnxruntime.so OMP_WAIT_POLICY=passive
# Keeps freed memory, which a training step asks for again at once: a tenth faster.
export MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=100000000
train=target/release/zeitnot-train
held=("$games/heldout-rapid.pgn.zst" "$games/heldout-blitz.pgn.zst")
mkdir -p "$work/maia"

$train prepare --out "$work/shards" $games/train-*.pgn.zst $games/surplus-*.pgn.zst

# optional OPTIONS...: makes an 8-bit file, or f32 where 8 bits are refused for the accuracy (exit code 3), and nothing
# else.
optional() {
  local code=0
  $train "$@" || code=$?
  [ $code -ne 3 ] || { echo "default-model: f32 instead"; $train "${@:1:$#-$eight}"; return; }
  return $code
}

# The teachers: f32 for the study, int8 to teach, which is faster. Their fitness is tested on games of a training file.
teachers=()
int8=(--int8 --calibration "$work/shards" --held-out $games/train-rapid-00.pgn.zst --limit 10000)
eight=${#int8[@]}
for rating in 1100 1200 1300 1400 1500 1600 1700 1800 1900; do
  file=../shared/maia1/maia-$rating.pb.gz
  [ -f "$work/maia/maia-$rating.onnx" ] || $train import lc0 $file --out "$work/maia/maia-$rating.onnx" --license GPL-3.0
  small=$work/maia/maia-$rating-int8.onnx
  [ -f "$small" ] || optional import lc0 $file --out "$small" --license GPL-3.0 "${int8[@]}"
  teachers+=(--teacher "$rating=$small")
done

if [ ! -f "$work/first.done" ]; then
  $train train --config trainer/recipes/zeitnot.toml --data "$work/shards" --out "$work/zeitnot-first" --resume \
    --stop-after $((60 * minutes)) "${teachers[@]}"
  touch "$work/first.done"
fi
$train train --config trainer/recipes/zeitnot-finish.toml --data "$work/shards" --out "$work/zeitnot" --resume \
  --init "$work/zeitnot-first" "${teachers[@]}"

# Shipped is the 8-bit file, which is faster, unless it is refused for its accuracy. It is judged, then written again
# with its figures inside.
int8=(--int8 --calibration "$work/shards" --held-out "${held[@]}")
eight=${#int8[@]}
ship() { optional export --checkpoint "$work/zeitnot" --model-version 1 --license GPL-3.0-or-later \
  --trained-on "shared/games: all train and surplus files; taught by the nine Maia-1 networks (GPL-3.0)" "$@" "${int8[@]}"; }
ship --out "$work/zeitnot.onnx"
$train evaluate --model "$work/zeitnot.onnx" --games "${held[@]}" --json models/zeitnot.json --picture models/zeitnot.svg
for class in rapid blitz; do
  $train evaluate --model "$work/zeitnot.onnx" --games $games/heldout-$class.pgn.zst --history-lengths 20 \
    --json models/zeitnot-$class.json
done
ship --metrics models/zeitnot.json --out models/zeitnot.onnx
cp "$(ls -d "$work"/zeitnot-first/step-* | tail -n 1)/network.safetensors" models/zeitnot-first.safetensors
cp "$work/zeitnot-first/curves.svg" models/zeitnot-training-1.svg
cp "$work/zeitnot/curves.svg" models/zeitnot-training-2.svg
# The card; steps are those of the newest checkpoints.
steps() { basename "$(ls -d "$work/$1"/step-* | tail -n 1)" | sed 's/step-0*//'; }
grep -aq QuantizeLinear models/zeitnot.onnx && kind=int8 || kind=f32
scripts/card.py "$(steps zeitnot-first)" "$(steps zeitnot)" $kind
