#!/bin/sh
# cudafront.sh NVCC DIR: every CUDA body through the front end of a compiler, for the oldest architecture and for the one with
# most forms, with warnings as errors. Nothing is optimised and no machine code is made: that is cudacheck.sh's.
#   ARCHS   architectures, as for make cuda (80-real;90a-real)
#   ONLY    a part of the paths of the files
#   JOBS    compilers at a time (2)
set -eu
nvcc=$1 out=$2
mkdir -p "$out"
front() { # front FILE ARCH
	echo "-std=c++17 -arch=$2 -ptx -G -Icuda -DCED_WITH_CUDA=1 --fmad=false -Werror=all-warnings -o $out/$(basename "$1" .cu).$2.ptx $1"
}

# A check that cannot fail is none.
echo '__global__ void never(unsigned n, int *p) { if (n >= 0) *p = 1; }' >"$out/never.cu"
if "$nvcc" $(front "$out/never.cu" sm_80) >"$out/never.log" 2>&1 || ! grep -q 'pointless comparison' "$out/never.log"; then
	echo "$nvcc does not object to a pointless comparison:" >&2
	cat "$out/never.log" >&2
	exit 1
fi
find cuda -name '*.cu' | sort | grep -F "${ONLY:-.cu}" | while read -r file; do
	for arch in $(sh tools/archs.sh "${ARCHS:-80-real;90a-real}"); do front "$file" "$arch"; done
done | xargs -P "${JOBS:-2}" -L 1 "$nvcc" || { echo "CUDA bodies that $nvcc does not take" >&2; exit 1; }
