#!/usr/bin/env bash
# on_gpu.sh COUNT COMMAND...: runs a test where there are COUNT GPUs, on those that CTest gave it, else exits 77, which
# ctest reports as skipped. LOCKSTEP_UNDER goes before the command: "compute-sanitizer --tool memcheck".
set -euo pipefail
want=$1
shift
here=$(bash "$(dirname "$0")/../ci/visible_gpus.sh" | wc -l)
if ((here < want)); then
  echo "skipped: this test takes $want GPU(s), this machine has $here"
  exit 77
fi
# With a resource specification CTest sets a count of 0 for a test that asked for nothing: it may use what is here.
if ((${CTEST_RESOURCE_GROUP_COUNT:-0} > 0)); then
  gpus=
  for ((i = 0; i < CTEST_RESOURCE_GROUP_COUNT; ++i)); do
    given=CTEST_RESOURCE_GROUP_${i}_GPUS # "id:0,slots:1"
    id=${!given#id:}
    gpus+=${gpus:+,}${id%%,*}
  done
  export CUDA_VISIBLE_DEVICES=$gpus
fi
# shellcheck disable=SC2086
exec ${LOCKSTEP_UNDER:-} "$@"
