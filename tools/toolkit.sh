#!/bin/sh
# toolkit.sh DIR: a CUDA 13 compiler in DIR, from the PyPI packages of its parts (130 MB); no root, nothing installed.
set -eu
dir=$1 version='==13.*'
[ -x "$dir/bin/nvcc" ] && exit 0
rm -rf "$dir.tmp"
mkdir -p "$dir.tmp/wheels"
for part in nvcc crt runtime cccl cuobjdump nvdisasm; do
	python3 -m pip download --quiet --no-deps -d "$dir.tmp/wheels" "nvidia-cuda-$part$version"
done
python3 -m pip download --quiet --no-deps -d "$dir.tmp/wheels" "nvidia-nvvm$version"
for wheel in "$dir.tmp/wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$dir.tmp"; done
chmod +x "$dir.tmp"/nvidia/cu13/bin/* "$dir.tmp"/nvidia/cu13/nvvm/bin/*
rm -rf "$dir"
mv "$dir.tmp/nvidia/cu13" "$dir"
rm -rf "$dir.tmp"
"$dir/bin/nvcc" --version | grep release
