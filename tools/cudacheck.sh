#!/bin/sh
# cudacheck.sh NVCC DIR: compiles every CUDA body for every architecture with warnings as errors, and prints what the
# compiler says of each kernel. Fails on spills, on more registers than a kernel may have, and where an instruction that
# a kernel is written for is missing.
#   ARCHS   architectures (sm_80 sm_89 sm_90a, and sm_100a sm_120a where the compiler knows them)
#   ONLY    a part of the paths of the files to compile
set -eu
nvcc=$1 out=$2
mkdir -p "$out"
bin=$(dirname "$(readlink -f "$nvcc")")
export PATH="$bin:$PATH"
known=$("$nvcc" --list-gpu-code)
archs=${ARCHS:-sm_80 sm_89 sm_90a $(printf '%s\n' "$known" | grep -xE 'sm_100a|sm_120a' || true)}

# must KERNEL INSTRUCTION [ARCH]: what has to be in a kernel's code.
must() {
	case "$name" in $1) ;; *) return 0 ;; esac
	case "$arch" in ${3:-*}) ;; *) return 0 ;; esac
	grep -q "$2" "$base.sass" && return 0
	echo "$file for $arch: no $2" >&2
	return 1
}

status=0
printf '%-9s %-58s %5s %6s %6s\n' arch kernel regs shared spills
for file in $(find cuda -name '*.cu' | sort); do
	case "$file" in *"${ONLY:-}"*) ;; *) continue ;; esac
	name=$(basename "$file" .cu)
	for arch in $archs; do
		base=$out/$name.$arch
		if [ ! -e "$base.cubin" ] || [ -n "$(find cuda -name '*.h' -newer "$base.cubin")" ] || [ "$file" -nt "$base.cubin" ]; then
			if ! "$nvcc" -std=c++17 "-arch=$arch" -cubin -Icuda -DCED_WITH_CUDA=1 --fmad=false -Werror=all-warnings \
				-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter -Xptxas=-v -o "$base.cubin" "$file" 2>"$base.log"; then
				grep -v '^ptxas info' "$base.log" >&2
				rm -f "$base.cubin"
				status=1
				continue
			fi
			cuobjdump -sass "$base.cubin" >"$base.sass" 2>/dev/null || : >"$base.sass"
		fi
		awk -v arch="$arch" -v limit="${REGISTERS:-224}" '
			/Compiling entry function/ { split($0, q, "\047"); kernel = q[2] }
			/bytes spill stores/ { spills = $(NF - 9) + $(NF - 5); for (i = 1; i < NF; i++) if ($(i+1) == "bytes" && $(i+2) == "spill") { s += $i }; spills = s; s = 0 }
			/Used [0-9]+ registers/ {
				regs = shared = 0
				for (i = 1; i <= NF; i++) { if ($i == "Used") regs = $(i+1); if ($i ~ /^smem/) shared = $(i-2) }
				name = kernel; sub(/^_ZN3ced[0-9]*(_GLOBAL__N__[0-9a-f_]*[A-Za-z0-9_]*_cu_[0-9a-f]+_[0-9]+)?/, "", name)
				gsub(/_GLOBAL__N__[0-9a-f]+_[0-9]+_[A-Za-z0-9_]+_cu_[0-9a-f]+(_[0-9]+)?/, "", name)
				printf "%-9s %-58.58s %5d %6d %6d\n", arch, name, regs, shared, spills
				if (spills > 0 || regs > limit) bad = 1
			}
			END { exit bad }' "$base.log" || { echo "$file for $arch: spills, or too many registers" >&2; status=1; }
		must 'dense_gemm_cuda' HMMA.16816.F32.BF16 || status=1
		must 'expert_gemm_cuda' HMMA.16816.F32.BF16 || status=1
	done
done
exit $status
