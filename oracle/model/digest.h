// Digest of a tensor set, arithmetic.md 1: independent of order and sharding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

class Digest {
 public:
  // kind: 0 weight, 1 gradient, 2 m, 3 v, 5 scaling state of fp8.
  void take(std::uint64_t kind, std::uint64_t parameter, const std::vector<float>& values) {
    const std::uint64_t tensor = (kind << 32) + parameter;
    for (std::size_t e = 0; e < values.size(); ++e) {
      const std::uint64_t b = bits(values[e]), k = mixed(tensor * 0x9E3779B97F4A7C15u + e + 1);
      low_ += mixed(k ^ b);
      high_ += mixed((k + 0xD1B54A32D192ED03u) ^ (b << 32));
    }
  }
  std::uint64_t high() const { return high_; }
  std::uint64_t low() const { return low_; }
  std::string text() const;  // 32 hex digits, high then low.

 private:
  static std::uint64_t mixed(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::uint64_t high_ = 0, low_ = 0;
};

}  // namespace lockstep::oracle
