#!/bin/sh
# toolkit.sh DIR [12|13]: a CUDA compiler in DIR; no root, nothing installed. 13 comes from the PyPI packages of its parts
# (130 MB). Those of 12.4 lack the compiler's driver: it comes from Debian's packages (1 GB, of which 200 MB are kept), found
# through the mirror that this machine's apt uses.
set -eu
dir=$1 major=${2:-13}
[ -x "$dir/bin/nvcc" ] && exit 0
tmp=$dir.tmp
rm -rf "$tmp"
mkdir -p "$tmp"

from_pypi() {
	mkdir "$tmp/wheels"
	for part in cuda-nvcc cuda-crt cuda-runtime cuda-cccl cuda-cuobjdump cuda-nvdisasm nvvm; do
		python3 -m pip download --quiet --no-deps -d "$tmp/wheels" "nvidia-$part==13.*"
	done
	for wheel in "$tmp/wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$tmp"; done
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

from_debian() {
	state=$(cd "$tmp" && pwd)/apt keys=/usr/share/keyrings/debian-archive-keyring.gpg
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian/*$') ||
		{ echo "CUDA 12 comes from Debian's packages, and apt knows no mirror of Debian here" >&2; exit 1; }
	mkdir -p "$state/lists/partial" "$state/archives/partial" "$tmp/x" "$tmp/toolkit/bin" "$tmp/toolkit/lib64" "$tmp/toolkit/nvvm"
	printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: non-free\nSigned-By: %s\n' "$mirror" "$keys" >"$state/list.sources"
	apt update
	(cd "$state" && apt download nvidia-cuda-toolkit nvidia-cuda-dev)
	unpack nvidia-cuda-toolkit './usr/bin/*' './usr/lib/nvidia-cuda-toolkit/*'
	unpack nvidia-cuda-dev './usr/include/*' './usr/lib/*/libcudart_static.a' './usr/lib/*/libcudadevrt.a'
	t=$tmp/toolkit from=$tmp/x/usr/lib/nvidia-cuda-toolkit
	mv "$tmp/x/usr/include" "$t/include"
	mv "$from/bin/nvcc" "$from/bin/cicc" "$from/bin/crt" "$t/bin/"
	mv "$from/libdevice" "$t/nvvm/"
	for tool in ptxas fatbinary nvlink cudafe++ cuobjdump nvdisasm; do mv "$tmp/x/usr/bin/$tool" "$t/bin/"; done
	mv "$tmp"/x/usr/lib/*/libcuda*.a "$t/lib64/"
	cat >"$t/bin/nvcc.profile" <<'P'
TOP              = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(_HERE_):
INCLUDES        += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES       =+ $(_SPACE_) "-L$(TOP)/lib64"
P
}

case $major in
12) from_debian ;;
13) from_pypi ;;
*) echo "toolkit.sh: CUDA $major is none of 12, 13" >&2; exit 1 ;;
esac
"$tmp/toolkit/bin/nvcc" --version | grep release
rm -rf "$dir"
mv "$tmp/toolkit" "$dir"
rm -rf "$tmp"
