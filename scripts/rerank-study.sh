#!/usr/bin/env bash
# The re-ranker's study: scripts/rerank-study.sh [WORK_FOLDER]. Annotates games of ../shared with two engines, trains
# seed-paired re-rankers with and without the engine, judges them on held-out decisions, fits the allocation of searches,
# and writes docs/studies/reranker*. Goes on where it stopped; from nothing it takes about two hours on two cores.
#   SHIP=1 also writes models/reranker.onnx, trained on all of the evidence.
set -euo pipefail
cd "$(dirname "$0")/.."
games=../shared/games
work=${1:-runs/reranker}
studies=docs/studies
[ -d "$games" ] || { echo "rerank-study: $games is not there" >&2; exit 1; }
scripts/setup.sh onnxruntime libtorch stockfish ethereal
cargo build --release -p zeitnot-trainer
export ORT_DYLIB_PATH=$PWD/.native/onnxruntime/libonnxruntime.so OMP_WAIT_POLICY=passive
train=target/release/zeitnot-train
prior=models/zeitnot.onnx
mkdir -p "$work"

clocked=(blitz rapid bullet classical chesscom-blitz chesscom-bullet chesscom-rapid)
train_files=() held_files=()
for class in "${clocked[@]}"; do
  train_files+=("$games/train-$class-00.pgn.zst")
  held_files+=("$games/heldout-$class.pgn.zst")
done
$train prepare --out "$work/train" "${train_files[@]}" "$games/train-noclock-otb-0"{0,1,2}.pgn.zst
$train prepare --out "$work/heldout" "${held_files[@]}" "$games/heldout-noclock-otb.pgn.zst"

# annotate NAME ENGINE OPTIONS...: evidence in $work/NAME.
annotate() {
  local name=$1 engine=$2
  shift 2
  $train annotate --model $prior --engine ".native/bin/$engine" --from-ply 6 --out "$work/$name" "$@"
}
for engine in stockfish ethereal; do
  annotate $engine-train-strong $engine --data "$work/train" --depth 8 --rating-from 2500 --per-player 200 --limit 16000
  annotate $engine-held-strong $engine --data "$work/heldout" --depth $([ $engine = stockfish ] && echo 10 || echo 8) \
    --rating-from 2500 --per-player 150 --limit 5000
done
annotate stockfish-train-others stockfish --data "$work/train" --depth 8 --rating-to 2499 --per-player 100 --limit 6000
annotate stockfish-held-others stockfish --data "$work/heldout" --depth 8 --rating-to 2499 --per-player 50 --limit 3000

# reranker NAME OPTIONS...: a re-ranker in $work/NAME, trained on the strong players' decisions unless told otherwise.
reranker() {
  local name=$1
  shift
  [ -f "$work/$name/reranker.onnx" ] || $train train-reranker --config trainer/recipes/reranker-study.toml \
    --model $prior --data "$work/train" --out "$work/$name" --name "$name" "$@"
}
# judge NAME OPTIONS...: figures in $studies/reranker-NAME.json.
judge() {
  local name=$1
  shift
  $train evaluate --model $prior --data "$work/heldout" --json "$studies/reranker-$name.json" "$@" >"$work/$name.txt"
}
for seed in 1 2 3; do
  reranker free-$seed --seed $seed --without-engine --evidence "$work/stockfish-train-strong"
  reranker stockfish-$seed --seed $seed --depths 8 --evidence "$work/stockfish-train-strong"
  reranker ethereal-$seed --seed $seed --depths 8 --evidence "$work/ethereal-train-strong"
  for engine in stockfish ethereal; do
    judge pair-$engine-$seed --depth 8 --evidence "$work/$engine-held-strong" --reranker "free=$work/free-$seed/reranker.onnx" \
      "stockfish=$work/stockfish-$seed/reranker.onnx" "ethereal=$work/ethereal-$seed/reranker.onnx"
  done
done
# Depths: trained at one or at several, judged at each.
reranker depth-4 --seed 1 --depths 4 --evidence "$work/stockfish-train-strong"
reranker depths --seed 1 --depths 2,4,6,8 --evidence "$work/stockfish-train-strong"
for depth in 2 4 6 8 10; do
  judge depth-$depth --depth $depth --evidence "$work/stockfish-held-strong" --reranker "free=$work/free-1/reranker.onnx" \
    "trained at 4=$work/depth-4/reranker.onnx" "trained at 8=$work/stockfish-1/reranker.onnx" \
    "trained at 2, 4, 6, 8=$work/depths/reranker.onnx"
done
$train allocate --reranker "$work/depths/reranker.onnx" --model $prior --data "$work/heldout" --depths 2,4,6,8,10 \
  --evidence "$work/stockfish-held-strong" --json $studies/reranker-allocation.json --picture $studies/reranker-allocation.svg

# What is served: all of the evidence, several depths, styles.
if [ ! -f "$work/served/reranker.onnx" ]; then
  $train train-reranker --config trainer/recipes/reranker.toml --model $prior --data "$work/train" --out "$work/served" \
    --evidence "$work/stockfish-train-strong" "$work/stockfish-train-others" --unscored 40000 --license GPL-3.0-or-later \
    --trained-on "decisions of shared/games, scored by Stockfish 15.1 at depth 8"
fi
judge served --evidence "$work/stockfish-held-strong" "$work/stockfish-held-others" --depth 8 \
  --reranker "served=$work/served/reranker.onnx" --styles "$work/served/styles" --picture $studies/reranker-served.svg
if [ "${SHIP:-}" = 1 ]; then
  $train allocate --reranker "$work/served/reranker.onnx" --model $prior --data "$work/heldout" --depths 4,6,8,10 \
    --evidence "$work/stockfish-held-strong" --out models/reranker.onnx
fi
scripts/rerank_study.py
