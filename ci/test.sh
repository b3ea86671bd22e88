#!/usr/bin/env bash
# Sets up, builds, and runs the test suite. Arguments go to ctest. Tests labelled `slow` are left out unless SLOW=1;
# tests labelled `gpu` are reported as skipped where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/stage.sh
build=${BUILD:-build}
select=(-LE '^slow$')
[[ -z ${SLOW:-} ]] || select=()
resources=()
status=0
run_tests() {
  # One more than builds: the long tests of networks and of processes mostly wait.
  ctest --test-dir "$build" --no-tests=error --output-on-failure -j "$(($(jobs) + 1))" "${select[@]}" "${resources[@]}" "$@"
}

stage deps bash ci/deps.sh
stage configure cmake -G Ninja -S . -B "$build" ${CMAKE_OPTIONS:-}
stage build cmake --build "$build" --parallel "$(jobs)"
if bash ci/resource_spec.sh >"$build/resources.json" 2>/dev/null; then
  resources=(--resource-spec-file "$PWD/$build/resources.json")
fi
stage test run_tests "$@" || status=$?
stage_times
exit "$status"
