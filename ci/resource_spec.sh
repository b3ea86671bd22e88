#!/usr/bin/env bash
# Writes CTest's resource specification for the GPUs that are here, one slot each, to stdout. Exit status 3: there are none.
set -euo pipefail
count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
if ((count == 0)); then
  echo "resource_spec: no GPU" >&2
  exit 3
fi
echo '{"version": {"major": 1, "minor": 0}, "local": [{"gpus": ['
for ((id = 0; id < count; ++id)); do
  printf '  {"id": "%d", "slots": 1}%s\n' "$id" "$( ((id + 1 < count)) && echo ,)"
done
echo ']}]}'
