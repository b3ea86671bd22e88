#!/usr/bin/env bash
# Everything that is run on a GPU runner, from an installed tree (or a build: BUILD=build bash ci/gpu.sh). Logs go under
# ${OUT:-out}, a short table comes last. Exit status 3: no GPU. GPU_STAGES="tests verify" runs these stages only.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ -f $here/../CTestTestfile.cmake ]]; then
  share=$(cd "$here/.." && pwd) # An installed tree: share/lockstep/ci.
  lockstep=$(cd "$here/../../.." && pwd)/bin/lockstep
else
  share=$(cd "$here/.." && pwd)/${BUILD:-build}
  lockstep=$share/bin/lockstep
fi
scenarios=$(cd "$here/.." && pwd)/scenarios/library
out=${OUT:-out}
mkdir -p "$out"
bash "$here/resource_spec.sh" >"$out/gpus.json" || exit 3
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/gpu.txt"

rows=()
failed=0

# The file of the library's scenario NAME, whichever room it is in.
scenario() { find "$scenarios" -name "$1.yaml" | head -n 1; }

# row NAME COMMAND...: runs it into a log of that name, notes result and time.
row() {
  local name=$1 start=$SECONDS status=0 note
  shift
  [[ " ${GPU_STAGES:-$name} " == *" ${name%%.*} "* || " ${GPU_STAGES:-$name} " == *" $name "* ]] || return 0
  "$@" >"$out/$name.log" 2>&1 || status=$?
  note=$(tail -n 1 "$out/$name.log" | cut -c 1-70)
  rows+=("$(printf '%-28s %-8s %5d s  %s' "$name" "$( ((status == 0)) && echo held || echo "exit $status")" $((SECONDS - start)) "$note")")
  ((status == 0)) || failed=1
  printf '%s\n' "${rows[-1]}"
}

# Under a sanitizer the case runs in the program itself, not in a child, and each allocation has bounds of its own.
sanitized() {
  local log status=0
  log=$(LOCKSTEP_EXACT_ALLOCATIONS=1 compute-sanitizer --tool "$1" --error-exitcode 9 "$lockstep" verify --device cuda \
    --no-fork --quiet "$(scenario "$2")" 2>&1) || status=$?
  printf '%s\n' "$log"
  if [[ $1 == racecheck && $status == 9 ]]; then races_are_known "$log"; else return "$status"; fi
}

# Where one lane arrives at a barrier for its warp, racecheck takes what the others read before for unordered, and names
# attention's kernels (docs/known-limitations.md). No other race passes, nor so many that some were not printed.
races_are_known() {
  local all known
  all=$(sed -n 's/.*RACECHECK SUMMARY: \([0-9]*\) hazards displayed.*/\1/p' <<<"$1")
  known=$(grep -cE 'Race reported between .* void lockstep::attention_(forward|backward)_bf16<' <<<"$1")
  ((known > 0 && known == all && all < 100)) && ! grep -q '^FAIL ' <<<"$1" || return 9
  echo "no race but $known in attention, which are none"
}

# The weights after training are the same bits on both devices.
same_digest() {
  local cuda sim
  cuda=$("$lockstep" train --device cuda "$(scenario "$1")" | grep -ioE '\b[0-9a-f]{32}\b' | tail -n 1)
  sim=$("$lockstep" train --device sim "$(scenario "$1")" | grep -ioE '\b[0-9a-f]{32}\b' | tail -n 1)
  echo "cuda ${cuda:-none} sim ${sim:-none}"
  [[ -n $cuda && $cuda == "$sim" ]]
}

row doctor "$lockstep" doctor
row calibrate "$lockstep" doctor --calibrate --device cuda --json "$out/calibrate.json"
row tests ctest --test-dir "$share" -L '^gpu$' -LE '^slow$' --no-tests=error --output-on-failure -j "${JOBS:-4}" \
  --resource-spec-file "$(realpath "$out/gpus.json")"
row verify "$lockstep" verify --device cuda --json "$out/verify.json" --junit "$out/verify.xml" "$scenarios"
for scenario in packed-fallback-mix hybrid-in-flight-3 full-iteration; do
  for tool in memcheck initcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
      row "$tool.$scenario" sanitized "$tool" "$scenario"
    else
      rows+=("$(printf '%-28s absent' "$tool.$scenario")")
    fi
  done
done
row pressure env LOCKSTEP_BIN="$(dirname "$lockstep")" bash "$here/pressure.sh" 3 "${JOBS:-2}"
# Ranks that are processes, over NCCL where the machine has a GPU for each, and attention by cuDNN.
row outside env OUT="$(realpath "$out")/outside" LOCKSTEP="$lockstep" DEVICE=cuda BUDGET="${OUTSIDE_S:-1200}" \
  bash "$here/campaign.sh" --with nccl,processes,cudnn
row bench "$lockstep" bench --device cuda --json "$out/bench.json" "$(scenario long-hybrid)"
for scenario in hybrid-in-flight-3 long-hybrid; do
  row "digest.$scenario" same_digest "$scenario"
done

echo
tee "$out/summary.txt" < <(cat "$out/gpu.txt"; printf '%s\n' "${rows[@]}")
exit "$failed"
