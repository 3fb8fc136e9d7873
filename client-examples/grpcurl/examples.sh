#!/usr/bin/env bash
# Calls worth typing. Usage: examples.sh [HOST:PORT], with a server running (`make serve`).
set -euo pipefail
address=${1:-localhost:50051}
here=$(cd "$(dirname "$0")/../.." && pwd)
grpcurl=${GRPCURL:-$here/.native/bin/grpcurl}
call() { "$grpcurl" -plaintext "$@"; }
say() { printf '\n# %s\n' "$1"; }

say "Is the server ready?"
call "$address" grpc.health.v1.Health/Check

say "Which services and models are there?"
call "$address" list
call "$address" zeitnot.v1.ModelService/ListModels

say "What does a 1500 play against the Sicilian, with most of ten minutes left?"
call -d '{
  "position": {"moves": ["e2e4", "c7c5"]},
  "mover": {"rating": 1500, "rating_system": "RATING_SYSTEM_LICHESS"},
  "opponent": {"rating": 1520, "rating_system": "RATING_SYSTEM_LICHESS"},
  "time_control": {"initial": "600s"}, "clock": {"mover_remaining": "590s", "opponent_remaining": "595s"},
  "top_k": 5
}' "$address" zeitnot.v1.PredictionService/Predict

say "A middlegame in SAN, five minutes with increment, 40 seconds left"
call -d '{
  "position": {"moves": ["e4", "e5", "Nf3", "Nc6", "Bc4", "Bc5", "c3", "Nf6", "d3", "d6", "O-O", "O-O", "Re1", "a6", "Bb3", "Ba7", "h3", "h6", "Nbd2"]},
  "mover": {"rating": 1850}, "opponent": {"rating": 1790},
  "time_control": {"initial": "300s", "increment": "3s"}, "clock": {"mover_remaining": "40s"},
  "top_k": 3
}' "$address" zeitnot.v1.PredictionService/Predict

say "From a FEN, with nothing known of the players: the answer says what was unknown"
call -d '{
  "position": {"initial_fen": "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"},
  "top_k": 3
}' "$address" zeitnot.v1.PredictionService/Predict

say "A master, re-ranked by engines where the server has some (--engines): rerankStatus says what became of it"
call -d '{
  "position": {"moves": ["e4", "e5", "Nf3", "Nc6", "Bb5", "Nf6", "O-O", "Nxe4"]},
  "mover": {"rating": 2650}, "time_control": {"initial": "180s", "increment": "2s"},
  "rerank": {"mode": "RERANK_MODE_AUTO", "movetime": "0.1s"}, "top_k": 3
}' "$address" zeitnot.v1.PredictionService/Predict

say "A finished game has an outcome and no moves"
call -d '{"position": {"moves": ["f3", "e5", "g4", "Qh4#"]}}' "$address" zeitnot.v1.PredictionService/Predict

say "Model files that have changed are loaded beside the old ones and take their place"
call "$address" zeitnot.v1.ModelService/ReloadModels

say "A mistake is named by its field"
if call -d '{"position": {"moves": ["e4", "e5", "Nf7"]}}' "$address" zeitnot.v1.PredictionService/Predict 2>&1; then
  echo "this should have failed" >&2
  exit 1
fi
