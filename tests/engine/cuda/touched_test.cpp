// Which ops of a graph must wait for work beside them: those that share a byte that one of them
// writes. Needs no GPU.
#include "engine/cuda/launches/touched.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>

#include "kernels/core/contract.h"

namespace lockstep {
namespace {

constexpr bool kWritten = true, kRead = false;

Touched columns(const std::byte* matrix, std::int64_t rows, std::int64_t pitch, std::int64_t first,
                std::int64_t count, bool is_written) {
  return {matrix + first, rows, count, pitch, is_written};
}

TEST(Touched, ReadersDoNotMeet) {
  const std::byte memory[64] = {};
  EXPECT_FALSE(
      meet({columns(memory, 4, 16, 0, 16, kRead)}, {columns(memory, 4, 16, 0, 16, kRead)}));
  EXPECT_TRUE(
      meet({columns(memory, 4, 16, 0, 16, kRead)}, {columns(memory, 4, 16, 0, 16, kWritten)}));
  EXPECT_FALSE(meet({}, {columns(memory, 4, 16, 0, 16, kWritten)}));
}

TEST(Touched, ColumnsBesideEachOtherDoNotMeet) {
  const std::byte memory[64] = {};
  const Touched left = columns(memory, 4, 16, 0, 6, kWritten);
  EXPECT_FALSE(meet({left}, {columns(memory, 4, 16, 6, 10, kWritten)}));
  EXPECT_TRUE(meet({left}, {columns(memory, 4, 16, 5, 3, kRead)}));
  // The second begins a row further down.
  EXPECT_FALSE(meet({left}, {columns(memory + 16, 3, 16, 6, 10, kRead)}));
  EXPECT_TRUE(meet({left}, {columns(memory + 16, 3, 16, 0, 1, kRead)}));
}

std::set<const std::byte*> bytes_of(const Touched& one) {
  std::set<const std::byte*> bytes;
  for (std::int64_t row = 0; row < one.rows; ++row) {
    for (std::int64_t k = 0; k < one.row_bytes; ++k)
      bytes.insert(one.begin + row * one.pitch_bytes + k);
  }
  return bytes;
}

// Views of one block, of any pitches.
TEST(Touched, WhatSharesAByteMeets) {
  const std::byte memory[256] = {};
  std::uint64_t state = 20261127;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>((mix64(state += 0x9E3779B97F4A7C15u) >> 33) %
                                     static_cast<std::uint64_t>(n));
  };
  int shared = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto view = [&](std::int64_t pitch) {
      const std::int64_t width = 1 + below(pitch);
      return columns(memory + below(64), 1 + below(4), pitch, 0, width, kWritten);
    };
    const std::int64_t pitch = 4 + below(20);
    const Touched a = view(pitch), b = view(below(2) == 0 ? pitch : 4 + below(20));
    const std::set<const std::byte*> of_a = bytes_of(a), of_b = bytes_of(b);
    bool shares = false;
    for (const std::byte* byte : of_a) shares = shares || of_b.contains(byte);
    ASSERT_TRUE(meet({a}, {b}) || !shares);
    ASSERT_EQ(meet({a}, {b}), meet({b}, {a}));
    ++(shares ? shared : apart);
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart, 1000);
}

}  // namespace
}  // namespace lockstep
