#!/usr/bin/env bash
# Tests gpu-check.sh on the simulated device: a run whole, one without a device, programs that fail and hang, a device
# that fails, a bundle. make test-gpu-check builds what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
script=scripts/gpu-check.sh

die() {
  echo "$*" >&2
  exit 1
}

# expect STATUS TEXT COMMAND...: the command ends with it and says that.
expect() {
  local want=$1 text=$2 got=0
  shift 2
  "$@" >"$work/said" 2>&1 || got=$?
  if [ $got != "$want" ] || ! grep -q -- "$text" "$work/said"; then
    cat "$work/said" >&2
    die "$*: status $got, not $want with \"$text\""
  fi
}

# report DIR EXPRESSION: what must hold of a report r.
report() {
  python3 -c "import json, sys; r = json.load(open(sys.argv[1])); assert $2, sys.argv[1]" "$1/report.json" ||
    die "$1/report.json: not $2"
}

echo "a run"
GPU_CHECK_SECONDS=240 expect 0 "0 of .* rows failed" $script --simulated --out "$work/run"
cat "$work/said"
report "$work/run" 'r["simulated"] and r["failures"] == 0 and {x["part"] for x in r["results"]} == set(r["parts"].split(","))'
report "$work/run" 'len({x["benchmark"] for x in r["benchmarks"]}) == 20 and all(x["us"] > 0 for x in r["benchmarks"])'
report "$work/run" 'len(r["limits"]) >= 6 and all(x["rate"] > 0 for x in r["limits"])'

echo "no device"
CED_SIM_DEVICES=0 expect 77 "^skipped: no GPU: no CUDA device" $script --simulated --out "$work/none"
[ ! -e "$work/none" ] || die "a run without a device leaves $(ls "$work/none")"
CED_SIM_DEVICES=0 CED_TEST_BODIES=cuda expect 1 "there is no CUDA device" build/sim/ced_test row_gather

echo "programs that fail and hang"
mkdir "$work/bin"
ln -s "$PWD/build/sim/ced_bench" "$PWD/bin/cedrun-sim" "$work/bin"
mv "$work/bin/cedrun-sim" "$work/bin/cedrun"
cat >"$work/bin/ced_test" <<'END'
#!/bin/sh
case $1 in
  embed*) echo 'a "quoted" word' && exit 3 ;;
  norm_quant*) exec sleep 60 ;;
esac
END
chmod +x "$work/bin/ced_test"
GPU_CHECK_BIN=$work/bin GPU_CHECK_SECONDS=6 expect 1 "norm_quant .*timed out" $script --simulated --only kernels --out "$work/bad"
report "$work/bad" '[x["result"] for x in r["results"]][:5] == ["passed", "failed", "passed", "timed out", "not run"]'
report "$work/bad" 'r["results"][1]["detail"] == "status 3: a \"quoted\" word"'

echo "compute-sanitizer: one that finds a race, and one that does not work"
cat >"$work/finds" <<'END'
#!/bin/sh
[ "$1 $3 $4 $5 $6" = "--tool --error-exitcode 9 --report-api-errors no" ] || exit 2
tool=$2
shift 6
"$@" && echo "ERROR SUMMARY: 0 errors" && [ "$tool" != racecheck ] || exit 9
END
printf '#!/bin/sh\necho "the debugger is off limits" && exit 1\n' >"$work/fails"
chmod +x "$work/finds" "$work/fails"
GPU_CHECK_SANITIZER=$work/finds expect 1 "^1 of 4 rows failed" $script --simulated --only sanitizer --out "$work/sanitizer"
report "$work/sanitizer" '[x["result"] for x in r["results"]] == ["passed", "passed", "failed", "passed"]'
GPU_CHECK_SANITIZER=$work/fails expect 0 "skipped .*does not work here: the debugger is off" $script --simulated --only sanitizer --out "$work/off"

echo "a device that fails"
CED_SIM_FAULT=40 expect 1 "all kernels .*failed .*illegal" $script --simulated --only bench --out "$work/fault"
report "$work/fault" 'r["failures"] == 1 and "error" in r["benchmarks"][-1]'

echo "a bundle"
$script --simulated --bundle "$work/bundle.tar.gz"
mkdir "$work/else where"
tar -C "$work/else where" -xzf "$work/bundle.tar.gz"
packed="$work/else where/gpu-check"
(cd / && expect 0 "0 of .* rows failed" "$packed/gpu-check.sh" --simulated --only variants,bench --out "$work/packed")
echo >>"$packed/testdata/ops/digests.json"
expect 1 "the bundle is damaged: .*digests.json" "$packed/gpu-check.sh" --simulated
expect 2 "the parts are" $script --only everything
echo "gpu-check.sh does what it says"
