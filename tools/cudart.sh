#!/bin/sh
# cudart.sh NVCC DIR: puts the static CUDA runtime of NVCC's toolkit and a link to its headers into DIR, where the Go build
# looks for them.
set -eu
root=$(dirname "$(dirname "$(readlink -f "$1")")")
first() { # first FILE FOLDER...: the first folder that has it
	file=$1
	shift
	for folder; do [ -e "$folder/$file" ] && echo "$folder" && return 0; done
	echo "no $file beside $nvcc" >&2
	return 1
}
nvcc=$1
lib=$(first libcudart_static.a "$root/lib64" "$root/lib" "$root"/targets/*-linux/lib "/usr/lib/$(uname -m)-linux-gnu")
headers=$(first cuda.h "$root/include" "$root"/targets/*-linux/include /usr/include)
cp -u "$lib/libcudart_static.a" "$2/"
ln -sfn "$headers" "$2/include"
