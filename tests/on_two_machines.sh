#!/usr/bin/env bash
# on_two_machines.sh COMMAND...: runs a test that makes machines of its own out of network namespaces, where that is
# permitted, else exits 77, which ctest reports as skipped. The test begins in an empty namespace: what it makes there
# (namespaces, interfaces) the kernel removes with its last process, however that ends.
set -euo pipefail
skip() {
  echo "skipped: this test takes network namespaces of its own: $*"
  exit 77
}
command -v unshare >/dev/null || skip "unshare (util-linux) is not installed"
command -v ip >/dev/null || skip "ip (iproute2) is not installed"
# A user namespace needs no root; where it is forbidden, root may do without it.
for own in "--user --map-root-user --net" "--net"; do
  # shellcheck disable=SC2086
  reason=$(unshare $own ip link add lockstep-a type veth peer name lockstep-b 2>&1) || continue
  # shellcheck disable=SC2086
  LOCKSTEP_OWN_NETWORK=1 exec unshare $own "$@"
done
skip "${reason:-not permitted}"
