# Sourced by the scripts of this folder: stages that say what they do and how long they took, and a table at the end.
STAGES=()

# stage NAME COMMAND...: runs it, notes the time, ends the script with its status if it fails.
stage() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '== %s: %s\n' "$name" "$*" >&2
  "$@" || status=$?
  STAGES+=("$(printf '%-12s %5d s   %s' "$name" $((SECONDS - start)) "$( ((status == 0)) && echo done || echo "exit $status")")")
  printf '== %s took %d s\n' "$name" $((SECONDS - start)) >&2
  return "$status"
}

stage_times() {
  printf '\n%-12s %7s   %s\n' stage time result
  printf '%s\n' "${STAGES[@]}"
}

# As many jobs as there are processors, but no more than memory takes: a compiler here needs up to 1.5 GB.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1500000)}' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}
