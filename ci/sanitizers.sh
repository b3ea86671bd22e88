#!/usr/bin/env bash
# The host tests, the library and random scenarios under the sanitizers of the compiler (presets host-asan, host-tsan):
#   bash ci/sanitizers.sh address|thread|all
#   CASES (5000)  SEED (of the campaign, fresh)  SCENARIOS (scenarios)  JOBS  BUILD (build-host-asan, -tsan)
# TESTS=0 leaves the host tests out, and builds the program alone. The files of scenarios/ are tests too, but run once.
# Logs, reports of the sanitizers and summary.txt lie under ${OUT:-out/sanitizers}/address and /thread. Exit status: 0 all
# stages ended well and no sanitizer reported anything, 1 otherwise, 2 usage.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/stage.sh
which=${1:-}
case $which in
  address) preset=host-asan ;;
  thread) preset=host-tsan ;;
  all)
    status=0
    for one in address thread; do bash ci/sanitizers.sh "$one" || status=$?; done
    exit "$status"
    ;;
  *) echo "sanitizers: name address, thread or all" >&2; exit 2 ;;
esac
cases=${CASES:-5000}
[[ $cases =~ ^[0-9]+$ ]] || { echo "sanitizers: $cases is no number of cases" >&2; exit 2; }
build=${BUILD:-build-$preset}
jobs=${JOBS:-$(jobs)}
out=${OUT:-out/sanitizers}/$which
mkdir -p "$out"
out=$(realpath "$out")
rm -rf "$out"/report.* "$out/planted" "$out/summary.txt"

# A report goes to a file of its process, since a worker's words are kept only if it dies. Tests and campaigns ask for more
# memory than there is, and count on a null pointer; a segment that is violated is for the watchdog of the program. Workers
# are forked from a process with threads.
reports_to() {
  export ASAN_OPTIONS=allocator_may_return_null=1:handle_segv=0:log_path=$1
  export UBSAN_OPTIONS=print_stacktrace=1:log_path=$1
  export TSAN_OPTIONS=die_after_fork=0:handle_segv=0:log_path=$1
}
reports_to "$out/report"
export LOCKSTEP_TEST_PATIENCE=${LOCKSTEP_TEST_PATIENCE:-10}

status=0
# Each stage runs, whatever the one before found.
row() {
  local name=$1
  shift
  stage "$name" "$@" >"$out/$name.log" || status=1
}
configure() { cmake --preset "$preset" -B "$build"; }
build() {
  if [[ ${TESTS:-1} == 0 ]]; then
    cmake --build "$build" --parallel "$jobs" --target lockstep
  else
    cmake --build "$build" --parallel "$jobs"
  fi
}
# A test may take ten times as long as without a sanitizer. Three limit the address space, of which a sanitizer reserves
# terabytes, and one reserves more than the thread sanitizer leaves. The campaign has a stage of its own.
tests() {
  local left_out='(style|install|scenario)\.|hostile\.(commands|network|engine)$|campaign\.random$'
  if [[ $which == thread ]]; then left_out+='|harness\.device_bytes$'; fi
  find "$build" -name CTestTestfile.cmake -exec sed -i -E 's/ TIMEOUT "([0-9]+)"/ TIMEOUT "\10"/g' {} +
  ctest --test-dir "$build" -LE '^(slow|gpu|corrupts)$' \
    -E "^($left_out)" \
    --no-tests=error --output-on-failure -j "$jobs" --timeout 3600 --output-junit "$out/ctest.xml"
}
# Faults that make an op read where it must not, in a process that may die of it: what a sanitizer reports there is no
# finding.
corrupting_tests() {
  mkdir -p "$out/planted"
  reports_to "$out/planted/report"
  ctest --test-dir "$build" -L '^corrupts$' -LE '^slow$' --no-tests=error --output-on-failure -j "$jobs" --timeout 3600
  local ended=$?
  reports_to "$out/report"
  return $ended
}
library() {
  "$build/bin/lockstep" verify --device sim --timeout 1200 --jobs "$jobs" --junit "$out/verify.xml" "${SCENARIOS:-scenarios}"
}
campaign() {
  "$build/bin/lockstep" fuzz --device sim --count "$cases" --timeout 1200 --jobs "$jobs" ${SEED:+--seed "$SEED"} \
    --corpus "$out/corpus" --log "$out/fuzz.ndjson" --junit "$out/fuzz.xml"
}

stage configure configure >"$out/configure.log"
stage build build >"$out/build.log"
if [[ ${TESTS:-1} != 0 ]]; then
  row tests tests
  row corrupting_tests corrupting_tests
fi
row library library
rm -f "$out/fuzz.ndjson"
row campaign campaign
shopt -s nullglob
reports=("$out"/report.*)
((${#reports[@]} == 0)) || status=1
{
  stage_times
  tail -n 1 "$out"/{tests,corrupting_tests,library,campaign}.log 2>/dev/null || true
  echo "$which: ${#reports[@]} reports of sanitizers${reports[0]:+, the first: ${reports[0]}}"
} | tee "$out/summary.txt"
exit "$status"
