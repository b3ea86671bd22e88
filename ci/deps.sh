#!/usr/bin/env bash
# Installs what the build needs, by the distribution's names, and nothing that is there already. Says so before it does.
# LOCKSTEP_FUZZERS=1: what the fuzzers take as well. Exit status 3: not root, or a system that is not known by name.
set -euo pipefail

. /etc/os-release
case "$ID:${VERSION_ID:-}" in
  debian:12) boost=1.81 ;; # The default there is 1.74, which has no Boost.JSON.
  ubuntu:2[4-9].* | ubuntu:[3-9][0-9].* | debian:1[3-9]) boost= ;;
  *)
    echo "deps: $ID ${VERSION_ID:-} is not known; known are Debian 12 and Ubuntu 24.04, and newer." >&2
    echo "deps: it takes g++ >= 12, cmake >= 3.25, ninja, python3, zlib, libcrypto (OpenSSL 3), yaml-cpp, GoogleTest, RapidCheck, and Boost >= 1.75" >&2
    echo "deps: (headers, program_options, json). With these in place: LOCKSTEP_SKIP_DEPS=1 bash ci/test.sh" >&2
    [[ -n ${LOCKSTEP_SKIP_DEPS:-} ]] && exit 0
    exit 3
    ;;
esac
if [[ -n ${LOCKSTEP_SKIP_DEPS:-} ]]; then exit 0; fi

packages=(
  g++ cmake ninja-build ccache python3 python3-yaml
  iproute2 # The tests on two machines.
  "libboost$boost-dev" "libboost-program-options$boost-dev" "libboost-json$boost-dev"
  zlib1g-dev libssl-dev libyaml-cpp-dev libgtest-dev libgmock-dev librapidcheck-dev
)
# For ci/fuzz_target.sh, which takes clang 16.
if [[ -n ${LOCKSTEP_FUZZERS:-} ]]; then
  [[ $ID:${VERSION_ID:-} == debian:12 ]] && packages+=(clang-16 libclang-rt-16-dev) || packages+=(clang libclang-rt-dev)
fi
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "deps: everything is there"
  exit 0
fi
# Comes along where something is installed anyway; without it one test, adapters.pytest, is skipped.
missing+=(python3-pytest)

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ((EUID != 0)); then
  echo "deps: missing: ${missing[*]}" >&2
  echo "deps: run this as root, then again: apt-get update && ${install[*]}" >&2
  exit 3
fi
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
removed=$(apt-get -s --no-install-recommends install "${missing[@]}" | sed -n 's/^Remv \([^ ]*\).*/\1/p' | paste -sd ' ')
[[ -z $removed ]] || echo "deps: this replaces $removed"
"${install[@]}"
