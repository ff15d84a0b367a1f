#!/bin/sh
# cudacheck.sh NVCC DIR: compiles every CUDA body for every architecture with warnings as errors, and prints what the
# compiler says of each kernel. Fails on spills, on more registers than a kernel may have, where an instruction of
# instructions.txt is missing, and where registers are written that wgmma still reads.
#   ARCHS   architectures, as for make cuda (80-real;89-real;90a-real, and 100-real;120-real where the compiler knows them)
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
case $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p') in # as device/ptx.h
12.4 | 13.[3-9]* | 1[4-9].* | [2-9]?.*) wgmma=yes ;;
*) wgmma=no ;;
esac
archs=$(sh tools/archs.sh "${ARCHS:-80;89;90a;$(printf '%s\n' "$known" | grep -xE 'sm_100|sm_120' | tr '\n' ';')}")

# gate ROWS NAME ARCH SASS: every row that is about this code finds its instruction in it. Rows that were about something
# are noted in $out/rows.
gate() {
	lacks=0
	while read -r kernel where instruction; do
		case "$kernel" in '' | '#'*) continue ;; esac
		case "$2" in $kernel) ;; *) continue ;; esac
		case "$3" in $where) ;; *) continue ;; esac
		echo "$kernel $where $instruction" >>"$out/rows"
		case "$instruction" in HGMMA*) [ $wgmma = yes ] || continue ;; esac
		grep -qF "$instruction" "$4" && continue
		echo "$2 for $3: no $instruction" >&2
		lacks=1
	done <"$1"
	return $lacks
}

: >"$out/rows"
files=$(find cuda -name '*.cu' | sort | grep -F "${ONLY:-.cu}")
for file in $files; do for arch in $archs; do echo "$nvcc $file $arch $out"; done; done |
	xargs -P "${JOBS:-2}" -n 4 sh "$0" --compile

# A check that cannot fail is none.
printf '/*10*/ HGMMA.64x8x16.F32.BF16 R24, R88, gdesc[UR8], R24 ;\n/*20*/ @P0 LOP3.LUT R89, R1, R2 ;\n' >"$out/never"
! awk -f tools/flight.awk "$out/never" >/dev/null || { echo "tools/flight.awk finds nothing in $out/never" >&2; exit 1; }

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
				# prefill has one block to a processor and may take all
				if (spills > 0 || regs > (kernel ~ /prefill/ ? 255 : limit)) bad = 1
			}
			END { exit bad }' || { echo "$file for $arch: spills, or too many registers" >&2; status=1; }
		gate tools/instructions.txt "$name" "$arch" "$base.sass" || status=1
		awk -f tools/flight.awk "$base.sass" >&2 || status=1
		printf '%s * FNORD.128\n' "$name" >"$out/never" # a gate that cannot fail is none
		! gate "$out/never" "$name" "$arch" "$base.sass" 2>/dev/null || { echo "the gate finds FNORD.128 in $base.sass" >&2; status=1; }
	done
done
# A row about no file and no architecture is a mistake.
[ -n "${ONLY:-}${ARCHS:-}" ] || while read -r kernel where instruction; do
	case "$kernel" in '' | '#'*) continue ;; esac
	grep -qxF "$kernel $where $instruction" "$out/rows" && continue
	echo "tools/instructions.txt: nothing is $kernel for $where" >&2
	status=1
done <tools/instructions.txt
exit $status
