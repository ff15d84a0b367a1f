#!/bin/sh
# Writes dist/cedrun-VERSION.tar.gz: the committed sources, the Go modules that they need, and their version. The same
# commit gives the same bytes. With the argument check it also builds the program from that file, without network, and
# runs it; the native library is built without optimisation, because only completeness is in question.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if version=$(git describe --tags --always 2>/dev/null); then
	time=$(git log -1 --format=%ct)
else # an unpacked tarball, or another tree without history
	version=$(cat VERSION 2>/dev/null || echo devel)
	time=0
fi
name=cedrun-$version
tree=$work/pack/$name
mkdir -p "$tree" dist
if [ "$time" != 0 ]; then
	git archive HEAD | tar -x -C "$tree"
else
	tar -c --exclude=./bin --exclude=./build --exclude=./dist --exclude=./vendor --exclude=./.tools . | tar -x -C "$tree"
fi
echo "$version" >"$tree/VERSION"
(cd "$tree" && go mod vendor)
tar -C "$work/pack" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -c "$name" | gzip -n >"dist/$name.tar.gz"
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
