#!/usr/bin/env bash
# Sets up, builds, and runs the main job: engine against oracle over the built-in scenarios on the best device here (an
# NVIDIA GPU if there is one, else the simulated device). Then plants one bug, which must be caught, and replays it from
# the line that was printed. Ends with a table of what ran and how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/stage.sh
build=${BUILD:-build}
fault=${FAULT:-replay-skipped-once}
lockstep=$build/bin/lockstep
out=$build/verify
status=0

# Succeeds if the planted bug is found (exit status 1), and found again in the same place by the line that was printed.
planted_bug() {
  local caught=0 again=0 line
  "$lockstep" verify --plant "$fault" ci/planted.yaml >"$out/planted.txt" || caught=$?
  cat "$out/planted.txt"
  ((caught == 1)) || { echo "verify: the planted bug $fault was not caught: exit status $caught" >&2; return 1; }
  line=$(sed -n 's/^ *replay: *//p' "$out/planted.txt" | head -n 1)
  [[ -n $line ]] || { echo "verify: no line to replay was printed" >&2; return 1; }
  read -ra words <<<"$line"
  "$lockstep" "${words[@]:1}" >"$out/replayed.txt" || again=$?
  ((again == 1)) || { echo "verify: the replay ended with $again: $line" >&2; cat "$out/replayed.txt" >&2; return 1; }
  # Words and numbers of the failure are equal; how long it took is not part of them.
  diff <(failure "$out/planted.txt") <(failure "$out/replayed.txt") || { echo "verify: the replay differs" >&2; return 1; }
  echo "planted $fault: caught, and caught again by its replay line"
}

# The first failure in a report, without its times.
failure() {
  awk '/^FAIL/ {on = 1} on {print} on && /replay:/ {exit}' "$1" | sed -E 's/[0-9.]+ ?s\b//g'
}

stage deps bash ci/deps.sh
stage configure cmake -G Ninja -S . -B "$build" ${CMAKE_OPTIONS:-}
stage build cmake --build "$build" --parallel "$(jobs)" --target all
mkdir -p "$out"
stage verify "$lockstep" verify --json "$out/verify.json" --junit "$out/verify.xml" "$@" || status=$?
stage planted planted_bug || status=1
stage_times
exit "$status"
