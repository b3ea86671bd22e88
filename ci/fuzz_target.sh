#!/usr/bin/env bash
# Runs a coverage-guided fuzzer of what reads the bytes of others, for N seconds (default 600) on one core:
#   bash ci/fuzz_target.sh reader|token|checkpoint|frames|peer|feed [N] [options of libFuzzer]
#   bash ci/fuzz_target.sh all [N]                 one after the other
# What it finds lies in ${OUT:-out/fuzz}/TARGET/found; a finding that is fixed becomes a test (the reader's: a file of
# tests/fuzz/corpus). Exit status: 0 nothing found, 1 a finding, 2 usage, 3 no clang with libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
targets="reader token checkpoint frames peer feed"
target=${1:-}
seconds=${2:-600}
build=${BUILD:-build-fuzz}
out=${OUT:-out/fuzz}
[[ " $targets all " == *" $target "* && -n $target ]] || { echo "fuzz_target: name one of $targets, or all" >&2; exit 2; }
[[ $seconds =~ ^[0-9]+$ ]] || { echo "fuzz_target: $seconds is no number of seconds" >&2; exit 2; }
shift $(($# < 2 ? $# : 2))
if [[ $target == all ]]; then
  status=0
  for one in $targets; do bash ci/fuzz_target.sh "$one" "$seconds" "$@" || status=$?; done
  exit "$status"
fi

# Clang before 16 lacks std::source_location.
compiler=
for one in ${CXX:-} clang++ clang++-{22,21,20,19,18,17,16}; do
  if echo '#include <source_location>
    extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return std::source_location::current().line() == 0; }' |
    "$one" -x c++ -std=c++20 -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
    compiler=$one
    break
  fi
done
[[ -n $compiler ]] ||
  { echo "fuzz_target: no clang++ 16 or newer with libFuzzer: apt-get install clang-16 libclang-rt-16-dev" >&2; exit 3; }

cmake --preset fuzz -B "$build" -DCMAKE_CXX_COMPILER="$compiler" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target "${target}_fuzzer"
out=$out/$target
mkdir -p "$out/found" "$out/corpus" "$out/seeds" "$out/folder/documents"
out=$(realpath "$out")
build=$(realpath "$build")
options=(-max_len=8192)
case $target in
  reader)
    # The fuzzer runs in a folder of its own, so that a text's `data.path` finds these documents and nothing else.
    echo 'A text.' >"$out/folder/documents/a.txt"
    echo '{"text": "A record."}' >"$out/folder/records.jsonl"
    cp tests/fuzz/corpus/* "$out/seeds"
    find scenarios -name '*.yaml' -size -16k | while read -r file; do cp "$file" "$out/seeds/${file//\//-}"; done
    options+=("-dict=$root/tests/fuzz/reader.dict")
    ;;
  token)
    grep -o 'ls[A-Za-z0-9_-]\{20,\}' tests/harness/frozen/tokens.json |
      while read -r token; do printf '%s' "$token" >"$out/seeds/${token:2:40}"; done
    ;;
  peer)
    # A rank with the key that posts its words: prove as rank 1, say a post.
    printf '\000\001\002\007\001\001\000\000\000' >"$out/seeds/honest"
    options=(-max_len=512)
    ;;
esac

# The libraries of the system are not instrumented, so the marks of a container's end that ASan keeps would be wrong.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1
status=0
cd "$out/folder"
"$build/bin/${target}_fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  "${options[@]}" -artifact_prefix="$out/found/" "$@" "$out/corpus" "$out/seeds" || status=1
((status == 0)) ||
  echo "fuzz_target: found: $out/found; with one of them: $build/bin/${target}_fuzzer FILE, in $out/folder" >&2
exit "$status"
