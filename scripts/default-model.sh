#!/usr/bin/env bash
# Makes the embedded model again: scripts/default-model.sh [WORK_FOLDER]. An hour or more on two cores; goes on
# where it stopped.
# Reads the games of ../shared/games; writes models/zeitnot-compact*.
set -euo pipefail
cd "$(dirname "$0")/.."
games=../shared/games
work=${1:-runs/default}
[ -d "$games" ] || { echo "default-model: $games is not there" >&2; exit 1; }
scripts/setup.sh onnxruntime libtorch
cargo build --release -p zeitnot-trainer
export ORT_DYLIB_PATH=$PWD/.native/onnxruntime/libonnxruntime.so OMP_WAIT_POLICY=passive
train=target/release/zeitnot-train

# Lichess games alone: sites' rating scales differ and otter/1 has one. Clocked games of all classes, the surplus of
# the slower ones, and a file of games without clocks, so that an unknown clock is learnt too.
$train prepare --out "$work/shards" \
  $games/train-{bullet,blitz,rapid,classical}-00.pgn.zst $games/surplus-{blitz,rapid}-00.pgn.zst \
  $games/train-noclock-lichess-00.pgn.zst
resume=()
compgen -G "$work/run/step-*" >/dev/null && resume=(--resume)
nice -n 10 $train train --config trainer/recipes/compact.toml --data "$work/shards" --out "$work/run" "${resume[@]}"

about=(--model-version 1 --license GPL-3.0-or-later
  --trained-on "lichess games of shared/games: train bullet, blitz, rapid, classical; surplus blitz, rapid; noclock 00")
$train export --checkpoint "$work/run" --out "$work/zeitnot-compact.onnx" "${about[@]}"
$train evaluate --model "$work/zeitnot-compact.onnx" --games $games/heldout-rapid.pgn.zst $games/heldout-blitz.pgn.zst \
  --json models/zeitnot-compact.json --picture models/zeitnot-compact.svg
for class in rapid blitz; do
  $train evaluate --model "$work/zeitnot-compact.onnx" --games $games/heldout-$class.pgn.zst --history-lengths 20 \
    --json models/zeitnot-compact-$class.json
done
$train export --checkpoint "$work/run" --out models/zeitnot-compact.onnx "${about[@]}" --metrics models/zeitnot-compact.json
cp "$work/run/curves.svg" models/zeitnot-compact-training.svg
