#!/bin/sh
# The boundary is whole: the archive defines every function that ced.h declares, and bin/cedrun lacks none.
set -eu
export LC_ALL=C
declared=$(grep -oE 'ced_[a-z0-9_]+\(' cuda/ced.h | tr -d '(' | sort -u)
defined=$(nm -g --defined-only build/libced.a | grep -oE 'ced_[a-z0-9_]+$' | sort -u)
missing=$(printf '%s\n' "$declared" | grep -vxF "$defined" || true)
[ -z "$missing" ] || { echo "declared in cuda/ced.h, not defined in build/libced.a:" $missing >&2; exit 1; }
undefined=$(nm -u bin/cedrun | grep -w 'ced_[a-z0-9_]*' || true)
[ -z "$undefined" ] || { echo "undefined in bin/cedrun:" $undefined >&2; exit 1; }
