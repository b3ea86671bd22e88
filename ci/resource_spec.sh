#!/usr/bin/env bash
# Writes CTest's resource specification for the GPUs that are here, one slot each, to stdout. Exit status 3: there are none.
set -euo pipefail
gpus=$(bash "$(dirname "$0")/visible_gpus.sh")
if [[ -z $gpus ]]; then
  echo "resource_spec: no GPU" >&2
  exit 3
fi
echo '{"version": {"major": 1, "minor": 0}, "local": [{"gpus": ['
sed 's/.*/  {"id": "&", "slots": 1}/; $!s/$/,/' <<<"$gpus"
echo ']}]}'
