// The random product by which an algorithm is admitted: its factors are known by their places, on the GPU and on the
// host, and any other order of the sum shows in the stored result.
#pragma once

#include "kernels/contract.h"
#include "kernels/cuda/product.h"

struct CUstream_st;

namespace lockstep {

namespace trial {

inline constexpr std::uint32_t kHuge = 127 + 13;  // Exponent field; its square is 2^26.

LOCKSTEP_HD std::uint32_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return static_cast<std::uint32_t>(
      mix64(a * 0x9E3779B97F4A7C15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu) >> 32);
}

// Numbers near one, of every sign, over seven exponents.
LOCKSTEP_HD bf16 small(std::uint64_t which, std::uint64_t row, std::uint64_t k) {
  const std::uint32_t h = mixed(which, row, k);
  return {static_cast<std::uint16_t>((h & 0x8000u) | ((124 + (h >> 16) % 7) << 7) | (h & 127u))};
}

// Two places of each k16 group, one in either half, belong to products of +2^26 and -2^26. A column starts such a pair
// in one group and undoes it in the same or a later one of its window of eight: between the two every small product is
// truncated away, before and after it counts. So the result depends, in its first digits, on which terms were added
// before which, and on what one sum is.
struct HugePlaces {
  std::uint32_t up, down;
};
LOCKSTEP_HD HugePlaces huge_places(std::uint64_t group) {
  const std::uint32_t h = mixed(7, 0, group);
  return {h % 8, 8 + (h >> 8) % 8};
}

LOCKSTEP_HD bf16 a(std::int64_t row, std::int64_t k) {
  const HugePlaces at = huge_places(static_cast<std::uint64_t>(k / 16));
  const std::uint32_t place = static_cast<std::uint32_t>(k % 16);
  if (place != at.up && place != at.down)
    return small(1, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k));
  return {static_cast<std::uint16_t>(kHuge << 7)};
}

LOCKSTEP_HD bf16 b(std::int64_t row, std::int64_t k, std::int64_t depth) {
  const std::int64_t group = k / 16;
  const HugePlaces at = huge_places(static_cast<std::uint64_t>(group));
  const std::uint32_t place = static_cast<std::uint32_t>(k % 16);
  if (place != at.up && place != at.down)
    return small(2, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k));
  const std::int64_t offset = mixed(3, static_cast<std::uint64_t>(row), 0) % 8;  // Windows start elsewhere in each row.
  const std::int64_t window = (group + offset) / 8;
  const bool whole = window > 0 && ((window + 1) * 8 - offset) * 16 <= depth;
  const std::uint32_t h = mixed(4, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(window));
  const std::int64_t start = h % 8, end = start + (h >> 8) % (8 - start), here = (group + offset) % 8;
  if (whole && place == at.up && here == start) return {static_cast<std::uint16_t>(kHuge << 7)};
  if (whole && place == at.down && here == end) return {static_cast<std::uint16_t>(0x8000u | kHuge << 7)};
  return {0};
}

// What an accumulator holds before.
LOCKSTEP_HD float c(std::int64_t row, std::int64_t col) {
  const std::uint32_t h = mixed(5, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(col));
  return from_bits((h & 0x80000000u) | ((120 + (h >> 24) % 20) << 23) | (h & 0x7fffffu));
}

// An element that is compared, of an m x n result: the corners, then random ones.
struct Place {
  std::int64_t row, col;
};
inline constexpr int kPlaces = 64;
LOCKSTEP_HD Place place(const Product& p, int index) {
  if (index < 4) return {index % 2 != 0 ? p.m - 1 : 0, index / 2 != 0 ? p.n - 1 : 0};
  return {static_cast<std::int64_t>(mixed(8, static_cast<std::uint64_t>(index), 0) % static_cast<std::uint64_t>(p.m)),
          static_cast<std::int64_t>(mixed(9, static_cast<std::uint64_t>(index), 0) % static_cast<std::uint64_t>(p.n))};
}

}  // namespace trial

// Writes the factors, and what the result holds before: c() where it is accumulated, else NaN.
void write_trial(CUstream_st* stream, const Product& product, void* a, void* b);
void write_trial_result(CUstream_st* stream, const Product& product, void* c);
// The compared elements of the result, widened to fp32, [kPlaces].
void gather_trial(CUstream_st* stream, const Product& product, const void* c, float* gathered);

// Element `index` as the model has it.
float trial_by_the_model(const Product& product, int index);

}  // namespace lockstep
