#!/bin/sh
# Writes dist/cedrun-VERSION.tar.gz: the committed sources, the Go modules that they need, and their version. The same
# commit gives the same bytes. With the argument check it also builds the program from that file, without network, and
# runs it; the native library is built without optimisation, because only completeness is in question.
set -eu
cd "$(dirname "$0")/.."
version=$(git describe --tags --always)
name=cedrun-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/pack" dist 2>/dev/null || mkdir -p dist
git archive --prefix="$name/" HEAD | tar -x -C "$work/pack"
echo "$version" >"$work/pack/$name/VERSION"
(cd "$work/pack/$name" && go mod vendor)
tar -C "$work/pack" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -c "$name" |
	gzip -n >"dist/$name.tar.gz"
echo "dist/$name.tar.gz"
[ "${1-}" = check ] || exit 0

mkdir "$work/check"
tar -xzf "dist/$name.tar.gz" -C "$work/check"
cd "$work/check/$name"
GOPROXY=off GOFLAGS=-mod=vendor make install CMAKE_FLAGS="-DCMAKE_BUILD_TYPE=Debug" PREFIX="$work/installed"
cd "$work"
cedrun=installed/bin/cedrun
$cedrun --version | grep -F "$version"
$cedrun inspect -m "check/$name/testdata/release/config.json" | grep -F "763,205,315,794"
$cedrun verify -m "check/$name/testdata/mini/base" --deep | tail -n 1
$cedrun generate -p "Once upon a time" --max-tokens 8
