#include "kernels/diagnostics/guard.h"

#include "kernels/diagnostics/fingerprint.h"

namespace lockstep {
namespace {

// Hides a value from the compiler, so that the arithmetic is done at run time.
float unknown(float x) {
  volatile float kept = x;
  return kept;
}
float sum(float a, float b) { return unknown(add(unknown(a), unknown(b))); }
float product(float a, float b) { return unknown(mul(unknown(a), unknown(b))); }

}  // namespace

std::string host_complaint() {
  if (sum(1.0f, 0x1p-25f) != 1.0f) return "this processor rounds up, not to the nearest number";
  if (sum(-1.0f, -0x1p-25f) != -1.0f)
    return "this processor rounds down, not to the nearest number";
  if (sum(1.0f, 0x1.8p-24f) == 1.0f)
    return "this processor rounds toward zero, not to the nearest number";
  // Compares bits, since a processor that flushes subnormal operands also compares them as zero.
  if (bits(product(0x1p-126f, 0.5f)) == 0)
    return "this processor flushes subnormal results to zero";
  if (product(0x1p-140f, 0x1p100f) == 0.0f)
    return "this processor takes subnormal operands for zero";
  std::uint64_t hashes[kFingerprints];
  run(HostQueue{}, Fingerprint{.hashes = tensor(hashes, 1, kFingerprints)});
  const std::string found = fingerprint_complaint(hashes);
  return found.empty() ? "" : "this processor: " + found;
}

}  // namespace lockstep
