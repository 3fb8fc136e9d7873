#!/usr/bin/env bash
# Fuzzes every target for SECONDS each (default 60): scripts/fuzz.sh [SECONDS [TARGET...]]
# Coverage-guided, without a sanitizer, so that the stable toolchain does; the code has no unsafe of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(game pgn clock timeout request weights lc0)
fuzz=.native/bin/cargo-fuzz
[ -x $fuzz ] || cargo install -q --root .native --version 0.13.2 --locked cargo-fuzz

# Seeds, so that the fuzzer starts from what makes sense.
seed() { mkdir -p "fuzz/corpus/$1" && printf '%s' "$2" >"fuzz/corpus/$1/seed-$3"; }
seed game $'rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1\ne2e4\nc5\nNf3' 1
seed game $'r3k2r/8/8/8/8/8/8/R3K2R w HAha - 0 1\ne1h1\nO-O-O' 2
seed game $'8/P6k/8/8/8/8/p6K/8 w - - 0 1\na8=Q\na2a1n' 3
mkdir -p fuzz/corpus/pgn && cp trainer/tests/data/mixed.pgn fuzz/corpus/pgn/
seed clock ' [%eval 0.2] [%clk 0:05:00.3] ' 1
seed clock '600+5' 2
seed timeout '250m' 1
mkdir -p fuzz/corpus/weights
python3 -c 'import struct,sys
h=b"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}"
sys.stdout.buffer.write(struct.pack("<Q",len(h))+h+bytes(8))' >fuzz/corpus/weights/seed-1
mkdir -p fuzz/corpus/lc0
# Magic number and format, then a first convolution of two channels.
python3 -c 'import sys
layer=lambda n: b"\x0d\0\0\0\0\x15\0\0\x80\x3f\x1a"+bytes([n&127|128,n>>7])+bytes(n)
kernel=layer(9*112*2*2)
varint=lambda n: bytes([n&127|128,n>>7])
block=b"\x0a"+varint(len(kernel))+kernel
weights=b"\x0a"+varint(len(block))+block
sys.stdout.buffer.write(b"\x0d\xc0\x01\0\0\x22\x0e\x08\x01\x12\x0a\x08\x01\x10\x02\x18\x04\x20\x02\x28\x02\x52"+varint(len(weights))+weights)' >fuzz/corpus/lc0/seed-1
seed request "$(printf '\x0a\x0c\x12\x04e2e4\x12\x04c7c5\x12\x03\x08\xdc\x0b')" 1

for target in "${targets[@]}"; do
  echo "fuzz: $target for $seconds s"
  log=$(mktemp)
  if ! $fuzz run --fuzz-dir fuzz -s none -O "$target" -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
    -print_final_stats=1 >"$log" 2>&1 || ! grep -q stat::number_of_executed_units "$log"; then
    tail -40 "$log" >&2
    echo "fuzz: $target failed, see above and fuzz/artifacts/$target" >&2
    exit 1
  fi
  grep -E 'stat::(number_of_executed_units|new_units_added)' "$log"
  rm -f "$log"
done
echo "fuzz: nothing found"
