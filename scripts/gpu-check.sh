#!/usr/bin/env bash
# Proves this build on a machine with a GPU and its driver; neither Go nor a network is needed there.
#
#   gpu-check.sh [--quick] [--out DIR] [--only PARTS]
#   gpu-check.sh --bundle FILE.tar.gz     packs what it needs to take along (from a built tree: make gpu-bundle)
#   gpu-check.sh --simulated ...          the same on the simulated device: tests this script, says nothing of a GPU
#
# Parts, in this order; PARTS is a list of them with commas between:
#   kernels    the tests of every kernel's CUDA body against the goldens
#   models     the mini checkpoints end to end, held to their goldens
#   variants   the same bits in other chunks, without graphs, with experts beyond device memory
#   sanitizer  compute-sanitizer over every kernel, where it works
#   bench      every kernel against the copy, read and matrix rates of this device
# It takes 8 minutes at most, with --quick 3 (GPU_CHECK_SECONDS changes that). DIR (gpu-check-out) gets report.json,
# report.md and what every program said.
# Status: 0 all passed; 1 something failed or was not run for want of time; 2 usage; 77 no GPU, nothing was tested.
set -euo pipefail

kernels=(embed row_gather norm_quant dense_gemm rope mhc_mix mhc_collapse mhc_expand mhc_border engram_gather engram_gate
  window_pack window_commit csa2_compress kv_append csa2_index csa2_attend route expert_gemm greedy)
minis=(plain edge base calm wide sched40 vl) # a bundle leaves out the last ones, for its size
parts=kernels,models,variants,sanitizer,bench

usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
  exit "${1:-2}"
}

quick=0 simulated=0 out=gpu-check-out bundle=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage 0 ;;
    --quick) quick=1 ;;
    --simulated) simulated=1 ;;
    --out | --only | --bundle)
      [ $# -gt 1 ] || usage
      case $1 in --out) out=$2 ;; --only) parts=$2 ;; *) bundle=$2 ;; esac
      shift
      ;;
    *) usage ;;
  esac
  shift
done
for part in ${parts//,/ }; do
  case $part in kernels | models | variants | sanitizer | bench) ;; *)
    echo "--only $part: the parts are kernels, models, variants, sanitizer and bench" >&2
    exit 2
    ;;
  esac
done

# In a bundle everything lies beside the script, in a tree where the build put it. GPU_CHECK_BIN names another folder.
home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -e "$home/SHA256SUMS" ]; then
  bundled=1 data=$home/testdata version=$(cat "$home/VERSION")
  ced_test=$home/bin/ced_test ced_bench=$home/bin/ced_bench cedrun=$home/bin/cedrun
else
  bundled=0 home=$(dirname "$home")
  data=$home/testdata version=$(git -C "$home" describe --tags --always --dirty 2>/dev/null || echo unknown)
  kind=cuda
  [ "$simulated" = 0 ] || kind=sim
  ced_test=$home/build/$kind/ced_test ced_bench=$home/build/$kind/ced_bench cedrun=$home/bin/cedrun-$kind
fi
if [ -n "${GPU_CHECK_BIN-}" ]; then
  ced_test=$GPU_CHECK_BIN/ced_test ced_bench=$GPU_CHECK_BIN/ced_bench cedrun=$GPU_CHECK_BIN/cedrun
fi
for program in "$ced_test" "$ced_bench" "$cedrun"; do
  [ -x "$program" ] || {
    echo "$program is missing: build it first (make cuda; for --simulated make sim)" >&2
    exit 1
  }
done

# ---- a bundle ----

pack() {
  local work most=40000000 size last needs
  work=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder of now
  trap "rm -rf '$work'" EXIT
  local to=$work/gpu-check packed=("${minis[@]}")
  mkdir -p "$to/bin" "$to/testdata/mini"
  cp "$ced_test" "$to/bin/ced_test"
  cp "$ced_bench" "$to/bin/ced_bench"
  cp "$cedrun" "$to/bin/cedrun"
  strip "$to"/bin/*
  needs=$(objdump -T "$to"/bin/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  cp -r "$data/ops" "$to/testdata/"
  for mini in "${minis[@]}"; do cp -r "$data/mini/$mini" "$to/testdata/mini/"; done
  cp "${BASH_SOURCE[0]}" "$to/gpu-check.sh"
  echo "$version" >"$to/VERSION"
  while :; do
    rm -f "$to/SHA256SUMS"
    (cd "$to" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/SHA256SUMS"
    mv "$work/SHA256SUMS" "$to/"
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c gpu-check | gzip -6n >"$bundle"
    size=$(stat -c %s "$bundle")
    [ "$size" -gt $most ] || break
    [ ${#packed[@]} -gt 3 ] || {
      echo "$bundle is larger than the $most bytes that are wanted" >&2
      exit 1
    }
    last=${packed[-1]}
    unset 'packed[-1]'
    rm -r "$to/testdata/mini/${last:?}"
  done
  echo "$bundle: $size bytes, version $version, with the models ${packed[*]}; for ${needs/_/ } or newer"
}
if [ -n "$bundle" ]; then
  [ "$bundled" = 0 ] || {
    echo "--bundle: this is one already" >&2
    exit 2
  }
  pack
  exit 0
fi
if [ "$bundled" = 1 ] && ! broken=$(cd "$home" && sha256sum --quiet -c SHA256SUMS 2>&1); then
  echo "the bundle is damaged: $(head -n 1 <<<"$broken")" >&2
  exit 1
fi

# ---- parts, and rows of the report ----

total=${GPU_CHECK_SECONDS:-$((quick ? 180 : 480))}
bench_time=$((total * 3 / 8)) # what the last part is left
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/{kernels,models,variants,sanitizer,bench}-*.log "$out"/{device.log,report.json,report.md,bench.jsonl}
touch "$out/bench.jsonl"
export CED_TEST_BODIES=cuda CED_TESTDATA=$data CEDRUN_CACHE_DIR=$out/cache CEDRUN_CONFIG=
begun=$(date -u +%Y-%m-%dT%H:%M:%SZ)
SECONDS=0
rows=() failures=0

json() { # a string
  local s=$1
  s=${s//\\/\\\\} s=${s//\"/\\\"}
  printf '"%s"' "${s//[[:cntrl:]]/ }"
}

row() { # PART NAME RESULT DETAIL SECONDS
  case $3 in passed | skipped) ;; *) failures=$((failures + 1)) ;; esac
  rows+=("{\"part\":$(json "$1"),\"name\":$(json "$2"),\"result\":$(json "$3"),\"detail\":$(json "$4"),\"seconds\":$5}")
  printf '%-10s %-28s %-10s %4ds  %.110s\n' "$1" "$2" "$3" "$5" "$4"
  results[$1/$2]=$3
}
declare -A results

last_words() { # of a log: its last line that says something
  sed 's/\x1b\[[0-9;]*m//g' "$1" | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c 1-300 || true
}

# run PART NAME SECONDS COMMAND...: a row for a command, which has at most so long and leaves time for the last part.
run() {
  local part=$1 name=$2 most=$3 log from=$SECONDS left rc=0
  shift 3
  log=$out/$part-${name//[^a-z0-9_.-]/_}.log
  left=$((total - SECONDS))
  [ "$part" = bench ] || left=$((left - bench_time))
  [ "$most" -le "$left" ] || most=$left
  if [ "$most" -le 0 ]; then
    row "$part" "$name" "not run" "out of time" 0
    return 1
  fi
  timeout -k 5 "$most" "$@" >"$log" 2>&1 || rc=$?
  case $rc in
    0) row "$part" "$name" passed "$(last_words "$log")" $((SECONDS - from)) ;;
    124 | 137) row "$part" "$name" "timed out" "after $most s: $(last_words "$log")" $((SECONDS - from)) ;;
    *) row "$part" "$name" failed "status $rc: $(last_words "$log")" $((SECONDS - from)) ;;
  esac
  return $((rc != 0))
}

wanted() { [[ ,$parts, == *,$1,* ]]; }

# ---- is there a device? ----

# The driver takes seconds to start for every GPU that a program may see, and some forty programs follow.
gpus=$(timeout 30 nvidia-smi -L 2>/dev/null || true)
if [ "$(grep -c '^GPU ' <<<"$gpus")" -gt 1 ] && [[ $gpus != *MIG* ]]; then
  export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-0}
fi
status=0
timeout 60 "$ced_bench" --device --json "$out/device.json" >"$out/device.log" 2>&1 || status=$?
case $status in
  0) ;;
  77)
    echo "skipped: no GPU: $(last_words "$out/device.log"); $cedrun doctor says more"
    rm -f "$out"/{device.log,device.json,bench.jsonl}
    rmdir "$out" 2>/dev/null || true # something else is in it
    exit 77
    ;;
  *)
    echo "the device cannot be asked (status $status): $(last_words "$out/device.log")" >&2
    exit 1
    ;;
esac
driver=$(timeout 30 nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0 2>/dev/null ||
  sed -n 's/.*Kernel Module *\(for [^ ]* *\)\{0,1\}\([0-9.]*\).*/\2/p' /proc/driver/nvidia/version 2>/dev/null || true)
[ "$simulated" = 0 ] || driver="none: simulated"
cpu=$(sed -n '/^model name/{s/^[^:]*: //p;q;}' /proc/cpuinfo)
memory=$(awk '/^MemTotal/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
device=$(last_words "$out/device.log")
echo "cedrun $version on $device; driver ${driver:-unknown}"

# ---- the parts ----

check_kernels() {
  local kernel some=("${kernels[@]}")
  # The others take minutes in a simulation, and have tests of their own there.
  [ "$simulated" = 0 ] || some=(embed row_gather norm_quant rope mhc_collapse window_pack window_commit route)
  for kernel in device "${some[@]}"; do
    if [ "$kernel" != device ] && ! grep -q " $kernel " "$out/device.json"; then
      row kernels "$kernel" failed "this build has no CUDA body of it" 0
    else
      run kernels "$kernel" 90 "$ced_test" "$kernel: " || true
    fi
  done
}

check_models() {
  local mini some=("${minis[@]}")
  [ "$quick" = 0 ] || some=(plain edge base calm)
  [ "$simulated" = 0 ] || some=(plain)
  for mini in "${some[@]}"; do
    if [ ! -e "$data/mini/$mini" ]; then
      row models "$mini" skipped "it is not in the bundle" 0
      continue
    fi
    run models "$mini" 120 "$cedrun" conform --backend cuda --model "$data/mini/$mini" || true
  done
}

# variant NAME FLAG...: logits with and without a flag must be the same bytes.
variant() {
  local name=$1 first=$out/reference.safetensors other=$out/variant.safetensors
  shift
  if ! grep -q -- " $1 " <<<"$help"; then
    row variants "$name" skipped "this build has no $1" 0
    return
  fi
  # shellcheck disable=SC2016 # the inner shell's
  run variants "$name" 60 bash -c 'a=$1 b=$2; shift 2; "$@" --out "$b" && cmp "$a" "$b" && echo "the same bits"' _ \
    "$first" "$other" "$cedrun" "${logits[@]}" "$@" || true
  rm -f "$other"
}

check_variants() {
  local mini=base ids
  [ "$simulated" = 0 ] || mini=plain
  ids=$(seq -s, 3 40)
  logits=(logits --backend cuda --model "$data/mini/$mini" --ids "$ids" --decode-from 30)
  help=$("$cedrun" logits --help)
  run variants "reference" 60 "$cedrun" "${logits[@]}" --out "$out/reference.safetensors" || return 0
  variant "chunks of 7" --chunk 7
  variant "without graphs" --no-graphs
  # The least that the model wants is in its refusal of less.
  local least
  least=$("$cedrun" "${logits[@]}" --out "$out/variant.safetensors" --expert-memory 1 2>&1 |
    sed -n 's/.*at least \([0-9]*\) bytes.*/\1/p' || true)
  variant "fewest experts on the device" --expert-memory "${least:-1}"
  variant "some experts on the device" --expert-memory "$((${least:-1} * 2))"
  rm -f "$out/reference.safetensors"
}

check_sanitizer() {
  local tool tools=(memcheck synccheck racecheck) program=${GPU_CHECK_SANITIZER-} flags=(--error-exitcode 9 --report-api-errors no)
  if [ -z "$program" ] && [ "$simulated" = 0 ]; then
    program=$(command -v compute-sanitizer || find /usr/local/cuda*/bin -name compute-sanitizer 2>/dev/null | head -n 1 || true)
  fi
  if [ -z "$program" ]; then
    row sanitizer compute-sanitizer skipped "there is none" 0
    return
  fi
  if ! timeout 60 "$program" --tool memcheck "${flags[@]}" "$ced_bench" --device >"$out/sanitizer-try.log" 2>&1; then
    row sanitizer compute-sanitizer skipped "it does not work here: $(last_words "$out/sanitizer-try.log")" 0
    return
  fi
  [ "$quick" = 0 ] || tools=(memcheck)
  for tool in "${tools[@]}"; do
    run sanitizer "$tool" 60 "$program" --tool "$tool" "${flags[@]}" "$ced_bench" --tiny --quick || true
  done
  [ "$quick" = 1 ] || run sanitizer "memcheck, odd shapes" 60 "$program" --tool memcheck "${flags[@]}" \
    "$ced_test" "norm_quant: " "row_gather: " "kv_append: " "csa2_compress: " || true
}

check_bench() {
  local flags=(--json "$out/bench.jsonl" --seconds $((total - SECONDS - 10)))
  [ "$quick" = 0 ] || flags+=(--quick)
  [ "$simulated" = 0 ] || flags+=(--tiny --quick)
  run bench "all kernels" "$total" "$ced_bench" "${flags[@]}" || true
  sed -n '/^  .*\/s$/p' "$out/bench-all_kernels.log" 2>/dev/null || true # it was not run
}

wanted bench || bench_time=0
! wanted kernels || check_kernels
! wanted models || check_models
! wanted variants || check_variants
! wanted sanitizer || check_sanitizer
! wanted bench || check_bench

# ---- the report ----

results_of() { for key in "${!results[@]}"; do echo "${key// /_} ${results[$key]}"; done; }

# A row for every kernel: its test, and the largest of its calls with the fewest and with the most rows.
table() {
  awk '
    function field(name,    s) {
      if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
      s = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
      gsub(/"/, "", s)
      return s
    }
    function call(key) { return key in text ? text[key] : "" }
    NR == FNR { sub(/^kernels\//, "", $1); name = $1; sub(/^[^ ]* /, ""); test[name] = $0; next }
    /"benchmark"/ {
      kernel = field("benchmark"); rows = field("rows") + 0
      if (field("error") != "") { text[kernel, "few"] = text[kernel, "many"] = "failed"; next }
      line = sprintf("%s%s%d %s: %.1f us, %.0f %% of %s", field("what"), field("what") == "" ? "" : ", ", rows, rows == 1 ? "row" : "rows",
        field("us"), 100 * field("share"), field("limit"))
      floor = field("floor_us") + 0
      if (!(kernel in least) || rows < least[kernel] || rows == least[kernel] && floor > few[kernel]) {
        least[kernel] = rows; few[kernel] = floor; text[kernel, "few"] = line
      }
      if (floor > many[kernel] || !(kernel in many)) { many[kernel] = floor; text[kernel, "many"] = line }
    }
    END {
      print "| kernel | test | decode | largest |\n| --- | --- | --- | --- |"
      n = split(names, order, " ")
      for (i = 1; i <= n; i++) {
        k = order[i]
        if (k in test || (k, "few") in text) printf "| %s | %s | %s | %s |\n", k, test[k], call(k SUBSEP "few"), call(k SUBSEP "many")
      }
    }' names="${kernels[*]}" <(results_of) names="${kernels[*]}" "$out/bench.jsonl"
}

lines() { # of JSON, as the elements of a list
  paste -s -d , | sed 's/},{/},\n  {/g'
}

{
  echo "{\"version\":$(json "$version"),\"simulated\":$([ "$simulated" = 0 ] && echo false || echo true),\"quick\":$([ "$quick" = 0 ] && echo false || echo true),"
  echo " \"begun\":\"$begun\",\"seconds\":$SECONDS,\"parts\":$(json "$parts"),"
  echo " \"host\":{\"processor\":$(json "$cpu"),\"processors\":$(nproc),\"memory\":$memory,\"kernel\":$(json "$(uname -r)")},"
  echo " \"driver\":$(json "$driver"),\"device\":$(head -n 1 "$out/device.json"),\"failures\":$failures,"
  echo " \"results\":[$(printf '%s\n' "${rows[@]}" | lines)],"
  echo " \"limits\":[$(grep '^{"limit".*}$' "$out/bench.jsonl" | lines)],"
  echo " \"benchmarks\":[$(grep '^{"benchmark".*}$' "$out/bench.jsonl" | lines)]}"
} >"$out/report.json"
{
  echo "cedrun $version on $device; driver ${driver:-unknown}; $begun, $SECONDS s$([ "$simulated" = 0 ] || echo "; simulated, nothing ran on a GPU")"
  echo
  table
} >"$out/report.md"
rm -f "$out/device.json"
echo
cat "$out/report.md"
echo
echo "$failures of ${#rows[@]} rows failed; $out/report.json, report.md"
exit $((failures != 0))
