#!/usr/bin/env bash
# A campaign of random scenarios as a runner does it: the corpus first, then random ones from a fresh, printed seed until
# the budget ends. Logs, reports and the YAML of what failed lie under ${OUT:-out/campaign}.
#   BUDGET (s, 600)  DEVICE (auto)  SHARD (i/n, 0/1)  SEED (fresh)  PROFILE (small)  BUILD (build)  CORPUS
# More options of `lockstep fuzz` may follow. Exit status: that of `lockstep fuzz`.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-out/campaign}
lockstep=${LOCKSTEP:-${BUILD:-build}/bin/lockstep}
corpus=${CORPUS:-$out/corpus}
mkdir -p "$out" "$corpus"
# What is committed is run too; new failures are kept beside it, in a folder that the runner stores.
cp -n scenarios/regressions/*.yaml "$corpus/" 2>/dev/null || true
shard=${SHARD:-0/1}
options=(--device "${DEVICE:-auto}" --budget "${BUDGET:-600}" --profile "${PROFILE:-small}" --shard "$shard"
  --corpus "$corpus" --log "$out/log-${shard%/*}.ndjson" --json "$out/campaign-${shard%/*}.json"
  --junit "$out/campaign-${shard%/*}.xml" --html "$out/campaign-${shard%/*}.html")
[[ -z ${SEED:-} ]] || options+=(--seed "$SEED")
echo "campaign: $lockstep fuzz ${options[*]} $*" >&2
exec "$lockstep" fuzz "${options[@]}" "$@"
