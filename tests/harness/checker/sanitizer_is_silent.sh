#!/bin/bash
# sanitizer_is_silent.sh PROGRAM: the missing edge that the checker reports leaves every tool of compute-sanitizer silent.
# Skipped (77) where there is no compute-sanitizer.
set -u
program=$1
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[ -n "$tool" ] || { echo "no compute-sanitizer"; exit 77; }
export LOCKSTEP_EXACT_ALLOCATIONS=1
for which in memcheck racecheck initcheck synccheck; do
  out=$("$tool" --tool $which "$program" --gtest_filter=CheckerCuda.SeesAMissingEdgeInAGraphThatChangesNoBit 2>&1)
  status=$?
  echo "$out" | grep -E "Missing edge|SUMMARY" | sed "s/^/$which: /"
  [ $status -eq 0 ] || { echo "$out"; echo "$which: exit status $status"; exit 1; }
  echo "$out" | grep -q "Missing edge" || { echo "$which: the checker reported nothing"; exit 1; }
  echo "$out" | grep -qE "SUMMARY: 0 (errors|hazards)" || { echo "$out"; echo "$which is not silent"; exit 1; }
done
