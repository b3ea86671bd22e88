#!/usr/bin/env bash
# The same as `bash ci/fuzz_target.sh reader`, which has more targets:
#   bash ci/fuzz_reader.sh [N] [options of libFuzzer]
exec bash "$(dirname "$0")/fuzz_target.sh" reader "$@"
