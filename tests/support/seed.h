// The seed of a test that draws: LOCKSTEP_SEED if it is set, else a fresh one; printed, so that a
// log can be repeated.
#pragma once

#include <gtest/gtest.h>
#include <sys/random.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace lockstep {

inline std::uint64_t test_seed() {
  std::uint64_t seed = 0;
  if (const char* given = std::getenv("LOCKSTEP_SEED"); given && *given) {
    seed = std::strtoull(given, nullptr, 10);
  } else {
    EXPECT_EQ(::getrandom(&seed, sizeof seed, 0), static_cast<ssize_t>(sizeof seed));
    seed >>= 11;  // Short enough for every reader of numbers.
  }
  std::printf("LOCKSTEP_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace lockstep
