// Philox4x32-10, arithmetic.md 0.4.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::oracle {

using PhiloxCounter = std::array<std::uint32_t, 4>;

inline PhiloxCounter philox(std::uint32_t k0, std::uint32_t k1, PhiloxCounter c) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0],
                        p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    const auto h0 = static_cast<std::uint32_t>(p0 >> 32), l0 = static_cast<std::uint32_t>(p0);
    const auto h1 = static_cast<std::uint32_t>(p1 >> 32), l1 = static_cast<std::uint32_t>(p1);
    c = {h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

inline PhiloxCounter philox(std::int64_t seed, const PhiloxCounter& counter) {
  return philox(static_cast<std::uint32_t>(seed),
                static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32), counter);
}

}  // namespace lockstep::oracle
