#!/bin/sh
# Names each tool that the build needs and that is missing, in one line with how to install it.
missing=0
need() { # need WHAT HOW COMMAND...: COMMAND must succeed
	what=$1 how=$2
	shift 2
	"$@" >/dev/null 2>&1 && return
	echo "missing: $what ($how)" >&2
	missing=1
}
cxx17() { echo '#include <string_view>' | "${CXX:-c++}" -std=c++17 -fsyntax-only -x c++ -; }
cgo() { [ "$(go env CGO_ENABLED)" = 1 ]; }

need "a C++17 compiler" "apt-get install g++, or set CXX" cxx17
need "cmake 3.20 or newer" "apt-get install cmake" cmake --version
if command -v go >/dev/null; then
	need "cgo" "set CGO_ENABLED=1 and CC to a C compiler" cgo
else
	need "Go 1.26 or newer" "https://go.dev/dl" false
fi
exit $missing
