#!/usr/bin/env bash
# Installs the peers of the benchmark into .native/peers, a virtual environment.
# Quick when they are there; versions and hashes are those of requirements.txt beside this file.
set -euo pipefail
cd "$(dirname "$0")"
peers=../../.native/peers

# Triton's Python backend wants the distribution's own interpreter, whose shared library and headers are in place.
python=/usr/bin/python3
$python -c 'import ensurepip, os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null &&
  command -v g++ >/dev/null || { echo "peers: Debian: apt-get install g++ python3-dev python3-venv" >&2; exit 1; }

# The environment is there when its stamp holds what it is made of.
made_of() { cat requirements.txt cuda_stub.cpp setup.sh; }
made_of | cmp -s - "$peers/stamp" && exit 0

echo "peers: installing; torch alone is half a gigabyte to download"
rm -rf "$peers"
$python -m venv "$peers"
install() { "$peers/bin/pip" install -q --disable-pip-version-check --no-deps --require-hashes "$@"; }
install --only-binary :all: -r <(grep -v '^fastchess' requirements.txt)
# A source archive, built with the numpy and setuptools just installed.
install --no-build-isolation -r <(grep '^fastchess' requirements.txt)

# Every function that torch's Python module takes from the libraries left out only answers 0, from one library for all.
cd "$peers"/lib/python3.*/site-packages/torch/lib
symbols() { nm -D --format=posix "$@" | sed 's/[@ ].*//' | sort -u; }
{ comm -12 <(symbols -u libtorch_python.so) <(symbols --defined-only libtorch_cuda.so libtorch_nvshmem.so) | grep -v '^_ZT'
  symbols -u libtorch_python.so | grep -E '^(cudnn|cuFile|nccl)'
} | awk '{ print ".weak " $1 "\n" $1 ":" } END { print "xor %eax, %eax\nret\n.section .note.GNU-stack" }' >zeros.s
echo 'libcudnn.so.9 { cudnn*; };' >versions
rm libtorch_cuda*.so libtorch_nvshmem.so
g++ -shared -fPIC -Wl,--version-script=versions -o libtorch_cuda.so "$OLDPWD/cuda_stub.cpp" zeros.s
for name in libcudnn.so.9 libcufile.so.0 libnccl.so.2; do ln -s libtorch_cuda.so $name; done
# As if built without torch.distributed, which would use NCCL's classes when it is imported.
sed -i '0,/^import torch$/s//&\ndel torch._C._c10d_init, torch._C._rpc_init/' ../distributed/__init__.py
cd "$OLDPWD"

made_of >"$peers/stamp"
echo "peers: ready"
