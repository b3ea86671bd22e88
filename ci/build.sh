#!/usr/bin/env bash
# Configures and builds into ${BUILD:-build}. CUDA is built where a toolkit is found (a GPU is not needed for that).
# More options of CMake may follow: bash ci/build.sh -DLOCKSTEP_CUDA=OFF
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/stage.sh
build=${BUILD:-build}

# A toolkit that is not on the path is still found where it is usually put.
if [[ -z ${CUDACXX:-} ]] && ! command -v nvcc >/dev/null && [[ -x /usr/local/cuda/bin/nvcc ]]; then
  export PATH=$PATH:/usr/local/cuda/bin
fi
stage configure cmake -G Ninja -S . -B "$build" "$@"
stage build cmake --build "$build" --parallel "$(jobs)"
stage_times
