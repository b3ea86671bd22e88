#include "kernels/diagnostics/fingerprint.h"

#include "kernels/core/fault.h"

namespace lockstep {

void run(HostQueue, const Fingerprint& op) {
  const bool flush = faulty("device-flushes-subnormals", false, true);
  for (int f = 0; f < kFingerprints; ++f) {
    std::uint64_t sum = 0;
    for (std::uint64_t e = 0; e < kFingerprintInputs; ++e) sum += fingerprint::term(f, e, flush);
    op.hashes.data[f] = sum;
  }
}

}  // namespace lockstep
