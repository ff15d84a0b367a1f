#!/bin/sh
# cudacheck.sh NVCC DIR: compiles every CUDA body for every architecture with warnings as errors, and prints what the
# compiler says of each kernel. Fails on spills, on more registers than a kernel may have, and where an instruction that
# a kernel is written for is missing.
#   ARCHS   architectures (sm_80 sm_89 sm_90a, and sm_100 sm_120 where the compiler knows them)
#   ONLY    a part of the paths of the files to compile
#   JOBS    compilers at a time (2)
set -eu
if [ "$1" = --compile ]; then # NVCC FILE ARCH DIR, unless it is there and newer than all sources
	file=$3 arch=$4 base=$5/$(basename "$3" .cu).$4
	[ -e "$base.cubin" ] && [ -z "$(find cuda -name '*.h' -newer "$base.cubin")" ] && [ ! "$file" -nt "$base.cubin" ] && exit 0
	if "$2" -std=c++17 "-arch=$arch" -cubin -Icuda -DCED_WITH_CUDA=1 --fmad=false -Werror=all-warnings \
		-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter -Xptxas=-v -o "$base.cubin" "$file" 2>"$base.log"; then
		cuobjdump -sass "$base.cubin" >"$base.sass" 2>>"$base.log" || { tail -n 1 "$base.log" >&2; rm -f "$base.cubin"; }
		exit 0
	fi
	grep -v '^ptxas info' "$base.log" >&2
	rm -f "$base.cubin"
	exit 0 # the table below says so
fi
nvcc=$1 out=$2
mkdir -p "$out"
bin=$(dirname "$(readlink -f "$nvcc")")
export PATH="$bin:$PATH"
known=$("$nvcc" --list-gpu-code)
archs=${ARCHS:-sm_80 sm_89 sm_90a $(printf '%s\n' "$known" | grep -xE 'sm_100|sm_120' || true)}

# must KERNEL INSTRUCTION [ARCH]: what has to be in a kernel's code.
must() {
	case "$name" in $1) ;; *) return 0 ;; esac
	case "$arch" in ${3:-*}) ;; *) return 0 ;; esac
	grep -q "$2" "$base.sass" && return 0
	echo "$file for $arch: no $2" >&2
	return 1
}

files=$(find cuda -name '*.cu' | sort | grep -F "${ONLY:-.cu}")
for file in $files; do for arch in $archs; do echo "$nvcc $file $arch $out"; done; done |
	xargs -P "${JOBS:-2}" -n 4 sh "$0" --compile

status=0
printf '%-9s %-58s %5s %6s %6s\n' arch kernel regs shared spills
for file in $files; do
	name=$(basename "$file" .cu)
	for arch in $archs; do
		base=$out/$name.$arch
		if [ ! -e "$base.cubin" ]; then
			echo "$file for $arch: it does not compile" >&2
			status=1
			continue
		fi
		c++filt -p <"$base.log" | awk -v arch="$arch" -v limit="${REGISTERS:-224}" '
			/Compiling entry function/ { split($0, q, "\047"); kernel = q[2]; spills = 0 }
			/bytes spill stores/ { for (i = 1; i < NF; i++) if ($(i + 2) == "spill") spills += $i }
			/Used [0-9]+ registers/ {
				regs = shared = 0
				for (i = 1; i <= NF; i++) { if ($i == "Used") regs = $(i + 1); if ($i ~ /^smem/) shared = $(i - 2) }
				gsub(/ced::|\(anonymous namespace\)::|void |\(ced_format\)/, "", kernel)
				printf "%-9s %-58.58s %5d %6d %6d\n", arch, kernel, regs, shared, spills
				if (spills > 0 || regs > limit) bad = 1
			}
			END { exit bad }' || { echo "$file for $arch: spills, or too many registers" >&2; status=1; }
		must 'dense_gemm_cuda' HMMA.16816.F32.BF16 || status=1
		must 'expert_gemm_cuda' HMMA.16816.F32.BF16 || status=1
		must 'csa2_attend_cuda' HMMA.16816.F32.BF16 || status=1
		must 'csa2_attend_cuda' LDSM.16.MT88 || status=1
		must 'csa2_index_cuda' IMMA.16832 || status=1
	done
done
exit $status
