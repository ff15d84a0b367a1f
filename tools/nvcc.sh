#!/bin/sh
# nvcc.sh NVCC [ARCHS]: says in one line what keeps this CUDA compiler from building the kernels, for these architectures,
# and fails then.
set -u
die() { echo "$*" >&2; exit 1; }
nvcc=${1:-}
[ -n "$nvcc" ] || die "no CUDA toolkit: put nvcc on PATH, name it by NVCC=, or run make toolkit"
command -v "$nvcc" >/dev/null || die "NVCC=$nvcc: there is no such program; name the nvcc of a CUDA toolkit, or run make toolkit"
version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
[ -n "$version" ] || die "NVCC=$nvcc does not say its version: it is no CUDA compiler, or a broken one"
oldest=$(printf '12.4\n%s\n' "$version" | sort -V | head -n 1)
[ "$oldest" = 12.4 ] || die "NVCC=$nvcc is of CUDA $version: 12.4 or newer is needed"
targets=
for a in $(echo "${2:-}" | tr ';' ' '); do
	name=${a%-real} name=${name%-virtual} number=${name%[af]}
	case $number in
	"" | *[!0-9]*) die "ARCHS=$2: $a is no architecture: give some as in 'ARCHS=80-real;90a-real'" ;;
	esac
	[ "$number" -ge 80 ] || die "ARCHS=$2: $a: the kernels need compute capability 8.0, so 80-real or later"
	case $a in
	*-real) targets="$targets -gencode arch=compute_$name,code=sm_$name" ;;
	*-virtual) targets="$targets -gencode arch=compute_$name,code=compute_$name" ;;
	*) targets="$targets -gencode arch=compute_$name,code=[sm_$name,compute_$name]" ;;
	esac
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo 'int main() { return 0; }' >"$tmp/x.cu"
"$nvcc" ${CUDAHOSTCXX:+-ccbin "$CUDAHOSTCXX"} -std=c++17 $targets -c -o "$tmp/x.o" "$tmp/x.cu" >"$tmp/log" 2>&1 && exit 0
reason=$(grep -m 1 -i error "$tmp/log" || head -n 1 "$tmp/log")
case $reason in
*"unsupported GNU version"* | *"unsupported clang version"*)
	die "CUDA $version does not take this C++ compiler: name an older one by CUDAHOSTCXX= (g++-13 for CUDA 12.4)" ;;
esac
case $reason in
*"nsupported gpu architecture"*) die "ARCHS=$2: CUDA $version does not know one of them: $reason" ;;
esac
die "NVCC=$nvcc cannot compile an empty program: $reason"
