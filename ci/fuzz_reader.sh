#!/usr/bin/env bash
# Runs the coverage-guided fuzzer of the YAML reader for N seconds (default 600) on one core:
#   bash ci/fuzz_reader.sh [N] [options of libFuzzer]
# What it finds lies in ${OUT:-out/fuzz}; a finding that is fixed goes into tests/fuzz/corpus under a name that says what
# it is. Exit status: 0 nothing found, 1 a finding, 3 no clang with libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
seconds=${1:-600}
build=${BUILD:-build-fuzz}
out=${OUT:-out/fuzz}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "fuzz_reader: $seconds is no number of seconds" >&2; exit 2; }
shift || true
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  clang++ -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
  echo "fuzz_reader: no clang++ with libFuzzer: apt-get install clang libclang-rt-dev" >&2
  exit 3
fi

cmake --preset fuzz -B "$build" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target reader_fuzzer
# The fuzzer runs in a folder of its own, so that a text's `data.path` finds these documents and nothing else.
mkdir -p "$out/found" "$out/corpus" "$out/seeds" "$out/folder/documents"
out=$(realpath "$out")
build=$(realpath "$build")
echo 'A text.' >"$out/folder/documents/a.txt"
echo '{"text": "A record."}' >"$out/folder/records.jsonl"
cp tests/fuzz/corpus/* "$out/seeds"
find scenarios -name '*.yaml' -size -16k | while read -r file; do cp "$file" "$out/seeds/${file//\//-}"; done

# The libraries of the system are not instrumented, so the marks of a container's end that ASan keeps would be wrong.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1
status=0
cd "$out/folder"
"$build/bin/reader_fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
  -dict="$root/tests/fuzz/reader.dict" -artifact_prefix="$out/found/" "$@" "$out/corpus" "$out/seeds" || status=1
((status == 0)) || echo "fuzz_reader: found: $out/found; with one of them: $build/bin/reader_fuzzer FILE, in $out/folder" >&2
exit "$status"
