#include "scenarios/documents/random.h"

namespace lockstep {
namespace {

// Keeps these draws apart from the draws of weights and dropout, which are keyed by the bare seed.
constexpr std::uint32_t kDataKey = 0x444f4353;
constexpr int kRounds = 10;

}  // namespace

std::uint32_t draw(std::int64_t seed, Purpose purpose, const DrawPlace& place, std::int64_t index) {
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32) ^ kDataKey;
  // A step has at most 1024 * 64 global microbatches, so their number takes 16 bits.
  std::uint32_t c0 = static_cast<std::uint32_t>(index);
  std::uint32_t c1 = static_cast<std::uint32_t>(place.document);
  std::uint32_t c2 = static_cast<std::uint32_t>(place.step);
  std::uint32_t c3 =
      static_cast<std::uint32_t>(place.microbatch) | static_cast<std::uint32_t>(purpose) << 16;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c0;
}

}  // namespace lockstep
