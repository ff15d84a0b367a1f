#!/bin/sh
# The boundary is whole: the archive defines every function that ced.h declares, and bin/cedrun lacks none. The binding of
# NVIDIA's management library makes the linker accept what is missing, so this is the only check of it; and what it leaves
# open must be bound when called, not at start.
set -eu
export LC_ALL=C
declared=$(grep -oE 'ced_[a-z0-9_]+\(' cuda/ced.h | tr -d '(' | sort -u)
defined=$(nm -g --defined-only build/libced.a | grep -oE 'ced_[a-z0-9_]+$' | sort -u)
missing=$(printf '%s\n' "$declared" | grep -vxF "$defined" || true)
[ -z "$missing" ] || { echo "declared in cuda/ced.h, not defined in build/libced.a:" $missing >&2; exit 1; }
undefined=$(nm -u bin/cedrun | grep -E ' (ced_[a-z0-9_]+|cu[A-Z][A-Za-z0-9_]*)$' || true)
[ -z "$undefined" ] || { echo "undefined in bin/cedrun:" $undefined >&2; exit 1; }
! readelf -d bin/cedrun | grep -qE 'BIND_NOW|FLAGS.* NOW' || {
	echo "bin/cedrun binds all functions at start, those of a driver that may be missing too: link with -Wl,-z,lazy (see Makefile)" >&2
	exit 1
}
