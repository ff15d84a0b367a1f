#!/bin/sh
# toolkit.sh DIR [12|12-ptx|13]: a CUDA compiler in DIR; no root, nothing installed. 13 comes from the PyPI packages of its
# parts (130 MB). Those of 12.4 lack the compiler's driver: it comes from Debian's packages (1 GB, of which 200 MB are kept),
# found through the mirror that this machine's apt uses. 12-ptx is what of 12.4 makes PTX (110 MB): the compiler from Debian,
# the headers from PyPI, no libraries.
set -eu
dir=$1 kind=${2:-13}
[ -x "$dir/bin/nvcc" ] && exit 0
tmp=$dir.tmp
rm -rf "$tmp"
mkdir -p "$tmp"

wheels() { # wheels VERSION PART...: unpacked in $tmp
	version=$1
	shift
	mkdir "$tmp/wheels"
	for part; do python3 -m pip download --quiet --no-deps -d "$tmp/wheels" "nvidia-$part==$version"; done
	for wheel in "$tmp/wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$tmp"; done
}

from_pypi() {
	wheels '13.*' cuda-nvcc cuda-crt cuda-runtime cuda-cccl cuda-cuobjdump cuda-nvdisasm nvvm
	chmod +x "$tmp"/nvidia/cu13/bin/* "$tmp"/nvidia/cu13/nvvm/bin/*
	mv "$tmp/nvidia/cu13" "$tmp/toolkit"
}

apt() { # with lists and an archive of its own
	apt-get -qq -o Dir::Etc::sourcelist="$state/list.sources" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$state/lists" \
		-o Dir::Cache::archives="$state/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root "$@"
}

unpack() { # unpack PACKAGE PATTERN...: what matches goes to $tmp/x
	package=$1
	shift
	dpkg-deb --fsys-tarfile "$state/$package"_*.deb | tar x -C "$tmp/x" --wildcards "$@"
}

debian() { # debian PACKAGE...: the files of 12.4, in $state
	state=$(cd "$tmp" && pwd)/apt keys=/usr/share/keyrings/debian-archive-keyring.gpg
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian/*$') ||
		{ echo "CUDA 12 comes from Debian's packages, and apt knows no mirror of Debian here" >&2; exit 1; }
	mkdir -p "$state/lists/partial" "$state/archives/partial" "$tmp/x" "$tmp/toolkit/bin" "$tmp/toolkit/lib64" "$tmp/toolkit/nvvm"
	t=$tmp/toolkit from=$tmp/x/usr/lib/nvidia-cuda-toolkit
	printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: non-free\nSigned-By: %s\n' "$mirror" "$keys" >"$state/list.sources"
	apt update
	(cd "$state" && apt download "$@")
}

compiler() { # out of what was unpacked
	mv "$from/bin/nvcc" "$from/bin/cicc" "$from/bin/crt" "$t/bin/"
	mv "$from/libdevice" "$t/nvvm/"
	cat >"$t/bin/nvcc.profile" <<'P'
TOP              = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(_HERE_):
INCLUDES        += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES       =+ $(_SPACE_) "-L$(TOP)/lib64"
P
}

from_debian() {
	debian nvidia-cuda-toolkit nvidia-cuda-dev
	unpack nvidia-cuda-toolkit './usr/bin/*' './usr/lib/nvidia-cuda-toolkit/*'
	unpack nvidia-cuda-dev './usr/include/*' './usr/lib/*/libcudart_static.a' './usr/lib/*/libcudadevrt.a'
	compiler
	mv "$tmp/x/usr/include" "$t/include"
	for tool in ptxas fatbinary nvlink cudafe++ cuobjdump nvdisasm; do mv "$tmp/x/usr/bin/$tool" "$t/bin/"; done
	mv "$tmp"/x/usr/lib/*/libcuda*.a "$t/lib64/"
}

ptx_only() {
	wheels '12.4.*' cuda-runtime-cu12 cuda-nvcc-cu12
	debian nvidia-cuda-toolkit
	unpack nvidia-cuda-toolkit './usr/lib/nvidia-cuda-toolkit/*'
	compiler
	mv "$tmp/nvidia/cuda_runtime/include" "$t/include"
	mv "$tmp/nvidia/cuda_nvcc/include/crt" "$t/include/"
}

case $kind in
12) from_debian ;;
12-ptx) ptx_only ;;
13) from_pypi ;;
*) echo "toolkit.sh: CUDA $kind is none of 12, 12-ptx, 13" >&2; exit 1 ;;
esac
"$tmp/toolkit/bin/nvcc" --version | grep release
rm -rf "$dir"
mv "$tmp/toolkit" "$dir"
rm -rf "$tmp"
