#!/usr/bin/env bash
# Makes the study of docs/studies/README.md again: scripts/study.sh [WORK_FOLDER].
# Needs the shards and the Maia networks of scripts/default-model.sh in the work folder; trains the variants in short
# runs of equal budget (goes on where it stopped), judges all on the held-out games and writes docs/studies.
set -euo pipefail
cd "$(dirname "$0")/.."
games=../shared/games
work=${1:-runs/default}
out=docs/studies
held=("$games/heldout-rapid.pgn.zst" "$games/heldout-blitz.pgn.zst")
[ -d "$work/shards" ] || { echo "study: $work/shards is not there, scripts/default-model.sh makes it" >&2; exit 1; }
scripts/setup.sh onnxruntime libtorch
cargo build --release -p zeitnot-trainer
export ORT_DYLIB_PATH=$PWD/.native/onnxruntime/libonnxruntime.so OMP_WAIT_POLICY=passive
train=target/release/zeitnot-train
mkdir -p $out "$work/study"

# What each choice in the network and its training is worth.
python3 scripts/choices.py trainer/recipes/choices.toml "$work/shards" "$work/choices" --maia "$work/maia"
cp "$work/choices/choices.json" $out/

# Base sees board and ratings, history adds the recent moves, full adds the clocks.
for variant in base history full; do
  without=()
  case $variant in
  base) without=(--without history,time) ;;
  history) without=(--without time) ;;
  esac
  $train train --config trainer/recipes/study.toml "${without[@]}" --data "$work/shards" --out "$work/study/$variant" --resume
  $train export --checkpoint "$work/study/$variant" --name "$variant" --out "$work/study/$variant.onnx"
done
$train evaluate --model "$work"/study/{base,history,full}.onnx --games "${held[@]}" --history-lengths 0,20 \
  --json $out/variants.json --picture $out/variants.svg

# The default, trained on with the honest clock and with the leaked one, which is the mover's clock after the move in
# place of that before it.
sed 's/^hide = /leak_clock = true\nhide = /' trainer/recipes/study-clock.toml >"$work/study/clock-leak.toml"
cp trainer/recipes/study-clock.toml "$work/study/clock-honest.toml"
for variant in clock-honest clock-leak; do
  $train train --config "$work/study/$variant.toml" --init "$work/zeitnot" --data "$work/shards" --out "$work/study/$variant" --resume
  $train export --checkpoint "$work/study/$variant" --name "$variant" --out "$work/study/$variant.onnx"
done
$train evaluate --model "$work"/study/clock-{honest,leak}.onnx --games "${held[@]}" --history-lengths 20 --json $out/honest.json
$train evaluate --model "$work/study/clock-leak.onnx" --games "${held[@]}" --history-lengths 20 --leak-clock --json $out/leak.json

$train evaluate --model models/zeitnot.onnx "$work"/maia/maia-1{1,2,3,4,5,6,7,8,9}00.onnx --games "${held[@]}" \
  --history-lengths 20 --json $out/maia.json
$train calibrate --model models/zeitnot.onnx --games "${held[@]}" --json $out/calibration.json --picture $out/calibration.svg
python3 scripts/study.py $out models/zeitnot.json
