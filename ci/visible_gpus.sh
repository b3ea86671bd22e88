#!/usr/bin/env bash
# Prints the index of each GPU that a program started here can use, one a line: those of nvidia-smi, or of these the
# ones that CUDA_VISIBLE_DEVICES names (by index or by the start of a UUID, up to the first that does not exist, as CUDA
# reads it).
set -euo pipefail
listed=$(nvidia-smi -L 2>/dev/null | sed -nE 's/^GPU ([0-9]+):.*\(UUID: ([^)]*)\).*/\1 \2/p; t; s/^GPU ([0-9]+):.*/\1 -/p' || true)
[[ -n $listed ]] || exit 0
if [[ -z ${CUDA_VISIBLE_DEVICES+set} ]]; then
  cut -d ' ' -f 1 <<<"$listed"
  exit 0
fi
for name in ${CUDA_VISIBLE_DEVICES//,/ }; do
  index=$(awk -v name="$name" '$1 == name || (name !~ /^[0-9]+$/ && index($2, name) == 1) { print $1; exit }' <<<"$listed")
  [[ -n $index ]] || break
  echo "$index"
done
