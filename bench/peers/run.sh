#!/bin/sh
# Runs cedrun and ftllm in turn on one checkpoint: bench/peers/run.sh --model DIR [--threads 2] [--prompt 512]
# [--decode 64] [--json FILE]; --help says the rest. The first call makes a virtual environment outside the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/cedrun/peers
venv=$cache/venv

if ! "$venv/bin/python" -c 'import ftllm.util' > /dev/null 2>&1; then
	echo "peers: making $venv (about 300 MB to download)" >&2
	python3 -m venv "$venv"
	# ftllm names the CUDA libraries and a web interface as requirements; its CPU library needs none of them.
	grep -v '^ftllm' "$here/requirements.txt" > "$cache/requirements"
	"$venv/bin/pip" install --quiet -r "$cache/requirements"
	"$venv/bin/pip" install --quiet --no-deps "$(grep '^ftllm' "$here/requirements.txt")"
fi
make -s -C "$root" lib > "$cache/build.log" 2>&1 || { cat "$cache/build.log" >&2; exit 1; }
(cd "$root" && go build -o "$cache/cedside" ./bench/peers/cedside)
version=$(cd "$root" && git describe --always --dirty 2> /dev/null || echo unknown)
exec python3 "$here/compare.py" --cedside "$cache/cedside" --python "$venv/bin/python" --cedrun-version "$version" "$@"
