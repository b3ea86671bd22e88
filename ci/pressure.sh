#!/usr/bin/env bash
# ci/pressure.sh [TIMES] [JOBS] [FIRST]: the whole library TIMES times with delays on every stream and all poison, each
# time with other delays, numbered from FIRST (1) on, so that several GPUs can share the numbers. JOBS runs at once on
# one device are each other's load. Each run is one process, since opening a GPU takes as long as ten scenarios. Two at
# once were quickest on an H200. Nothing may differ.
# LOCKSTEP_BIN: the folder of `lockstep` (build/bin). LOCKSTEP_DEVICE: cuda (default) or sim.
set -euo pipefail
times=${1:-20}
jobs=${2:-2}
first=${3:-1}
last=$((first + times - 1))
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/bin
[[ ! -f $root/CTestTestfile.cmake ]] || bin=$(cd "$root/../.." && pwd)/bin # An installed tree: share/lockstep/ci.
export lockstep=${LOCKSTEP_BIN:-$bin}/lockstep
export device=${LOCKSTEP_DEVICE:-cuda}
export work
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A copy of the library in which every scenario that has no `checker` of its own gets one, with seed $1.
press() {
  mkdir -p "$work/$1"
  cp -r "$root/scenarios/library/." "$work/$1"
  rm -rf "$work/$1/refused"
  for file in "$work/$1"/*/*.yaml; do
    grep -q '^checker:' "$file" && continue
    graph=', {stream: graph, spin: 10}'
    grep -q 'impl: none' "$file" && graph=
    # A delay that strikes nothing fails, so streams of copies have one only where something is copied.
    plan=$("$lockstep" describe "$file" | grep ' bytes to the host and back' || true)
    [[ -z $plan || $plan == *'total 0 bytes'* ]] || graph+=', {stream: d2h, spin: 10}, {stream: h2d, spin: 10}'
    printf '\nchecker: {poison: [fresh, freed, padding, staging], delays: [{stream: compute, spin: 10}, {stream: loader, spin: 100}%s], schedule: {seed: %s}}\n' \
      "$graph" "$1" >>"$file"
  done
}
one() {
  if "$lockstep" verify --no-fork --device "$device" "$work/$1" >"$work/$1.log" 2>&1; then
    echo "$1: $(tail -1 "$work/$1.log")"
  else
    echo "$1: exit status $?"
    grep -A 12 FAIL "$work/$1.log" | head -60
    exit 1
  fi
}
export -f one
for i in $(seq "$first" "$last"); do press "$i"; done
seq "$first" "$last" | xargs -P "$jobs" -I{} bash -c 'one {}'
echo "$times times the library, $jobs at once, on $device: nothing differed"
