#!/bin/sh
# Native tests, conformance and the model's tests under every instruction set of this machine; logits must be the same
# bytes under all of them.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for isa in plain avx2 avx512 avx512bf16 neon; do
	if ! CEDRUN_ISA=$isa bin/cedrun generate -p "Once" --max-tokens 1 >/dev/null 2>"$work/refused"; then
		grep -q "not supported" "$work/refused" || { cat "$work/refused" >&2; exit 1; }
		echo "$isa: not on this machine"
		continue
	fi
	export CEDRUN_ISA=$isa
	build/ced_test >"$work/native" || { cat "$work/native"; exit 1; }
	echo "$isa: native tests: $(tail -n 1 "$work/native")"
	for model in testdata/mini/*/; do
		bin/cedrun conform -m "$model" --backend cpu >"$work/conform" || { cat "$work/conform"; exit 1; }
		echo "$isa: conform $(basename "$model"): $(tail -n 1 "$work/conform")"
		bin/cedrun logits -m "$model" --backend cpu --ids 5,9,17,3,8,2,11,7,30,41,5,9,17,3,8,2,11 --decode-from 9 -o "$work/logits" >/dev/null
		cat "$work/logits" >>"$work/all.$isa"
	done
	# Not the prefix cache: half a minute that has nothing to do with instructions.
	go test -count=1 -skip 'HitLength|EveryTier|ThreeTimes|Branch|Image' ./runtime/model ./runtime/engine ./runtime/selftest
	go test -count=1 ./cmd/cedrun -run 'Logits|Conform|Generate'
	[ -f "$work/first" ] || cp "$work/all.$isa" "$work/first"
	cmp "$work/first" "$work/all.$isa"
	echo "$isa: logits equal those of the first set: $(sha256sum <"$work/all.$isa" | cut -c1-16)"
	unset CEDRUN_ISA
done
