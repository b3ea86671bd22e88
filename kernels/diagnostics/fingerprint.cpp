#include "kernels/diagnostics/fingerprint.h"

#include "kernels/core/shape.h"

namespace lockstep {
namespace {

// Fingerprints of version 1, on x86-64 and sm_90.
constexpr std::uint64_t kHashes[kFingerprints] = {
    0x82a57030bc66daf1u, 0xec04974144b1bc63u, 0xcd6f075d2568b5ddu, 0x5faf9309211235fdu,
    0x887976ad06e1cccau, 0xbe04385275078f3fu, 0x4f89d321fc61e7a4u, 0x340214896001654du,
    0xf9759995abf4d665u, 0x5e959ecc4cc0e662u, 0x062b769ffa280b0cu, 0x8599d8d02db3e1a4u,
    0x50ff8b2e1c3523f7u, 0x35e0779bc429765eu, 0xc946fd0c187223b3u, 0x85b8aa09684db8eeu,
    0x7315cbba877eaa50u, 0x247468f99f9602ffu};

}  // namespace

void check(const Fingerprint& op) {
  require_shape(op.hashes, 1, kFingerprints, "hashes is [1, kFingerprints]");
}

std::string fingerprint_complaint(const std::uint64_t* hashes) {
  for (int f = 0; f < kFingerprints; ++f) {
    if (hashes[f] != kHashes[f]) {
      return std::string(kFingerprinted[f]) + " has other bits than version " +
             std::to_string(kContractVersion) + " of the contract";
    }
  }
  return "";
}

}  // namespace lockstep
