#!/bin/sh
# cudalink.sh PROGRAM TEST: that a CUDA build needs no CUDA library to start, and what it says where the driver is missing,
# broken or too old; what make says without a toolkit. PROGRAM is cedrun, TEST the native tests. A machine with a working
# driver skips the last part.
set -eu
export LC_ALL=C
program=$1 native=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
wrong() { echo "cudalink: $*" >&2; bad=1; }

for file in "$program" "$native"; do
	needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
	case $needed in *libcud* | *libnv*) wrong "$file is linked against" $needed ;; esac
	! readelf -d "$file" | grep -qE 'BIND_NOW|FLAGS.* NOW' || wrong "$file binds all functions at start (see LAZY in the Makefile)"
	open=$(nm -u "$file" | grep -E ' (ced_[a-z0-9_]+|cu[A-Z][A-Za-z0-9_]*|cuda[A-Z][A-Za-z0-9_]*)$' || true)
	[ -z "$open" ] || wrong "undefined in $file:" $open
done
"$native" "prng" >"$tmp/out" 2>&1 || { cat "$tmp/out" >&2; wrong "$native does not run"; }
"$program" --version >/dev/null || wrong "$program does not start"

# Without a compiler, with something else in its place, and with one that is too old.
refuses() { # refuses NVCC SENTENCE [ARCHS]
	status=0
	make cuda NVCC="$1" ARCHS="${3:-90a-real}" >"$tmp/out" 2>"$tmp/err" || status=$?
	[ "$status" != 0 ] && [ "$(grep -vc '^make' "$tmp/err")" = 1 ] && grep -qF "$2" "$tmp/err" ||
		wrong "make cuda NVCC=$1 ended with $status and said:" "$(cat "$tmp/err")" "(want: $2)"
}
printf '#!/bin/sh\necho Cuda compilation tools, release 11.8, V11.8.89\n' >"$tmp/nvcc" && chmod +x "$tmp/nvcc"
refuses "" "no CUDA toolkit: put nvcc on PATH"
refuses "$tmp/none/nvcc" "there is no such program"
refuses "$(command -v true)" "does not say its version"
refuses "$tmp/nvcc" "12.4 or newer is needed"
printf '#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.1\n' >"$tmp/nvcc"
refuses "$tmp/nvcc" "need compute capability 8.0" 75-real
refuses "$tmp/nvcc" "is no architecture" 80-real,90a-real

# says FOLDER SENTENCE: with that folder first on the search path, --backend cuda ends with status 1 and one line that
# holds the sentence, and auto says so in a line and computes on the CPU.
generate() { LD_LIBRARY_PATH=$folder "$program" generate --raw -p "Once" --max-tokens 4 --seed 1 "$@" 2>"$tmp/err" >"$tmp/out"; }
line() { [ "$(wc -l <"$tmp/err")" = 1 ] && grep -qF -- "$1" "$tmp/err" && ! grep -q goroutine "$tmp/err"; }
says() {
	folder=$1 sentence=$2 status=0
	generate --backend cuda || status=$?
	[ "$status" = 1 ] && line "$sentence" || { wrong "--backend cuda ended with $status and said:" "$(cat "$tmp/err")" "(want: $sentence)"; }
	generate || wrong "--backend auto did not fall back where $sentence"
	line "$sentence" && [ -s "$tmp/out" ] || wrong "--backend auto said:" "$(cat "$tmp/err")" "(want: $sentence)"
}

if "$program" generate --raw -p "Once" --max-tokens 1 --backend cuda >/dev/null 2>&1; then
	echo "cudalink: there is a GPU here: what is said without one was not checked"
	exit $bad
fi

# fake NAME FLAG...: a libcuda.so.1 that answers as the flags say.
cat >"$tmp/driver.c" <<'C'
#ifndef INIT
#define INIT 0
#endif
#ifndef VERSION
#define VERSION 99000
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef EMPTY
int cuInit(unsigned flags) { return flags + INIT; }
#ifndef NO_VERSION
int cuDriverGetVersion(int *v) { return *v = VERSION, 0; }
#endif
int cuDeviceGetCount(int *n) { return *n = COUNT, 0; }
int cuGetErrorString(int e, const char **s) { return *s = "what the driver calls it", e == 0; }
#endif
int present;
C
fake() {
	name=$1
	shift
	mkdir -p "$tmp/$name"
	${CC:-cc} -shared -fPIC -Wl,-soname,libcuda.so.1 "$@" -o "$tmp/$name/libcuda.so.1" "$tmp/driver.c"
}
patch() { printf "$3" | dd of="$tmp/$1/libcuda.so.1" bs=1 seek="$2" conv=notrunc status=none; }

mkdir "$tmp/none" "$tmp/text"
echo "not a library" >"$tmp/text/libcuda.so.1"
fake class && patch class 4 '\001'       # of 32 bits
fake machine && patch machine 18 '\363'  # of a RISC-V
fake empty -DEMPTY
fake partial -DNO_VERSION
fake stub -DINIT=34
fake unseen -DINIT=100
fake mismatch -DINIT=803
fake fabric -DINIT=802
fake other -DINIT=999
fake old -DVERSION=11040
fake zero -DCOUNT=0
fake hollow # starts, and lacks all that comes after

[ -e /usr/lib/wsl/lib/libcuda.so.1 ] || says "$tmp/none" "no NVIDIA driver: no libcuda.so.1 for this machine"
says "$tmp/text" "cannot be loaded: $tmp/text/libcuda.so.1: file too short"
says "$tmp/class" "cannot be loaded: libcuda.so.1: wrong ELF class: ELFCLASS32"
says "$tmp/machine" "no NVIDIA driver: no libcuda.so.1 for this machine"
says "$tmp/empty" "$tmp/empty/libcuda.so.1 is no NVIDIA driver: it lacks cuInit"
says "$tmp/partial" "$tmp/partial/libcuda.so.1 is no NVIDIA driver: it lacks cuDriverGetVersion"
says "$tmp/stub" "it is the stub that programs are linked with"
says "$tmp/unseen" "it sees no GPU"
says "$tmp/mismatch" "of different versions: reboot (CUDA error 803)"
says "$tmp/fabric" "fabric manager"
says "$tmp/other" "what the driver calls it (CUDA error 999)"
says "$tmp/old" "too old: $tmp/old/libcuda.so.1 runs up to CUDA 11.4, this build needs"
says "$tmp/zero" "it sees no GPU"
says "$tmp/hollow" "does not start on $tmp/hollow/libcuda.so.1, which runs up to 99.0"
CUDA_VISIBLE_DEVICES=7 says "$tmp/unseen" "with CUDA_VISIBLE_DEVICES=7"
[ $bad = 0 ] && echo "cudalink: $program starts without CUDA, and says what is wrong with a driver in one line"
exit $bad
