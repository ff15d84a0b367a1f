#!/bin/sh
# archs.sh ARCHS: architectures as make cuda takes them (80-real;90a-real), as compilers do (sm_80 sm_90a).
for a in $(echo "$1" | tr ';' ' '); do
	a=${a#sm_}
	echo "sm_${a%-*}"
done
