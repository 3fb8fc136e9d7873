#!/usr/bin/env bash
# The three variants of the compact network in equal budget: scripts/ablation.sh [WORK_FOLDER [STEPS]].
# Base sees board and ratings, history adds the recent moves, full adds time control and clock.
# Needs the shards of scripts/default-model.sh; writes docs/studies/ablation.json and .svg.
set -euo pipefail
cd "$(dirname "$0")/.."
games=../shared/games
work=${1:-runs/default}
steps=${2:-1600}
[ -d "$work/shards" ] || { echo "ablation: $work/shards is not there, scripts/default-model.sh makes it" >&2; exit 1; }
scripts/setup.sh onnxruntime libtorch
cargo build --release -p zeitnot-trainer
export ORT_DYLIB_PATH=$PWD/.native/onnxruntime/libonnxruntime.so OMP_WAIT_POLICY=passive
train=target/release/zeitnot-train
models=()
for variant in base history full; do
  case $variant in
  base) without=(--without history,time) ;;
  history) without=(--without time) ;;
  full) without=() ;;
  esac
  run=$work/ablation-$steps-$variant
  resume=()
  compgen -G "$run/step-*" >/dev/null && resume=(--resume)
  nice -n 10 $train train --config trainer/recipes/compact.toml --steps "$steps" "${without[@]}" \
    --data "$work/shards" --out "$run" "${resume[@]}"
  $train export --checkpoint "$run" --name "$variant" --out "$run/$variant.onnx"
  models+=("$run/$variant.onnx")
done
mkdir -p docs/studies
$train evaluate --model "${models[@]}" --games $games/heldout-rapid.pgn.zst $games/heldout-blitz.pgn.zst \
  --history-lengths 0,20 --json docs/studies/ablation.json --picture docs/studies/ablation.svg
