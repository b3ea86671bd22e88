#!/usr/bin/env bash
# A campaign of random scenarios as a runner does it: the corpus first, so that the failures of earlier nights come
# before anything new, then random ones from a fresh, printed seed until the budget ends. Logs, reports and the YAML of
# what failed lie under ${OUT:-out/campaign}. With the SEED of the campaign that lies there it is continued; any other
# begins anew, and the logs and reports of the one before move to earlier/.
#   BUDGET (s, 600)  DEVICE (auto)  SHARD (i/n, 0/1)  SEED (fresh)  PROFILE (small)  BUILD (build)  CORPUS
# Each shard has a corpus of its own and runs all of it. Shards that run at once in one folder take an OUT each.
# On a machine with several GPUs shard i of DEVICE=cuda takes the i-th one alone, so that shards do not share one.
# More options of `lockstep fuzz` may follow. Exit status: that of `lockstep fuzz`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ -f $here/../CTestTestfile.cmake ]]; then
  installed=$(cd "$here/../../.." && pwd)/bin/lockstep # An installed tree: share/lockstep/ci. Paths are the caller's.
else
  cd "$here/.."
fi
lockstep=${LOCKSTEP:-${installed:-${BUILD:-build}/bin/lockstep}}
out=${OUT:-out/campaign}
corpus=${CORPUS:-$out/corpus}
mkdir -p "$out" "$corpus" || exit 3 # The environment failed; 1 would say that a promise was violated.
# What is committed is run too, as it is now; new failures are kept beside it, in a folder that the runner stores.
cp -f "$here"/../scenarios/regressions/*.yaml "$corpus/" 2>/dev/null || true
shard=${SHARD:-0/1}
index=${shard%/*}
log=$out/log-$index.ndjson
options=(--device "${DEVICE:-auto}" --budget "${BUDGET:-600}" --profile "${PROFILE:-small}" --shard "$shard"
  --corpus "$corpus" --log "$log" --json "$out/campaign-$index.json"
  --junit "$out/campaign-$index.xml" --html "$out/campaign-$index.html")
[[ -z ${SEED:-} ]] || options+=(--seed "$SEED")
if [[ -s $log ]]; then
  before=$(sed -n '1s/.*"seed":"\([0-9]*\)".*/\1/p' "$log")
  if [[ -n ${SEED:-} && $SEED == "$before" ]]; then
    options+=(--resume)
  else
    earlier=$out/earlier/$(date -u -r "$log" +%Y%m%dT%H%M%S)-seed-$before
    mkdir -p "$earlier"
    mv "$out"/{log,campaign}-"$index".* "$earlier/"
  fi
fi
if [[ ${DEVICE:-} == cuda && $shard != */1 ]]; then
  mapfile -t gpus < <(bash "$here/visible_gpus.sh")
  ((${#gpus[@]} < 2)) || export CUDA_VISIBLE_DEVICES=${gpus[$((index % ${#gpus[@]}))]}
fi
echo "campaign: $lockstep fuzz ${options[*]} $*" >&2
exec "$lockstep" fuzz "${options[@]}" "$@"
