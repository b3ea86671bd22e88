// The random product by which an algorithm is admitted. Its factors are functions of their indices,
// on the GPU and on the host, and any other order of the sum shows in the stored result.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/cuda/gemm/product.h"

struct CUstream_st;

namespace lockstep {

namespace trial {

LOCKSTEP_HD std::uint32_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return static_cast<std::uint32_t>(
      mix64(a * 0x9E3779B97F4A7C15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu) >> 32);
}

// Rows of either factor belong to classes, which scale by powers of two: plain rows, rows whose
// products with each other are subnormal, and rows whose products with each other overflow.
inline constexpr std::int64_t kClasses = 8;
LOCKSTEP_HD bool is_tiny(std::int64_t row) { return row % kClasses == 3 || row % kClasses == 7; }
LOCKSTEP_HD bool is_vast(std::int64_t row) { return row % kClasses == 5; }
LOCKSTEP_HD bf16 number(bool negative, std::int64_t row, std::uint32_t field,
                        std::uint32_t fraction) {
  const std::uint32_t moved = is_tiny(row) ? field - 68 : is_vast(row) ? field + 64 : field;
  return {static_cast<std::uint16_t>((negative ? 0x8000u : 0u) | moved << 7 | fraction)};
}

// A number of either sign with one of seven exponents around one.
LOCKSTEP_HD bf16 small(std::uint64_t which, std::int64_t row, std::int64_t k) {
  const std::uint32_t h =
      mixed(which, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k));
  return number((h & 0x8000u) != 0, row, 124 + (h >> 16) % 7, h & 127u);
}
LOCKSTEP_HD bf16 huge(bool negative, std::int64_t row) {
  return number(negative, row, 127 + 20, 0);
}

// Two elements of the first half of each k16 group belong to products of +2^40 and -2^40. Most
// columns have one such pair, which starts in one group and ends in the same or a later one. All
// that was summed before the pair ends, and the rest of the group in which it ends, is truncated
// away; what follows counts. So a sum that is split, interleaved or done in steps of 8 differs in
// its first digits, which survive the store to bf16.
struct HugePlaces {
  std::uint32_t up, down;
};
LOCKSTEP_HD HugePlaces huge_places(std::int64_t group, std::int64_t depth) {
  const std::uint32_t h = mixed(7, 0, static_cast<std::uint64_t>(group));
  const auto left = static_cast<std::uint32_t>(depth - 16 * group);
  const std::uint32_t places = left < 8 ? left : 8;
  if (places < 2) return {16, 16};  // Too few elements for a pair.
  const std::uint32_t up = h % places;
  return {up, (up + 1 + (h >> 8) % (places - 1)) % places};
}

// Two columns of eight have no pair: with a single group nothing would be left to compare.
LOCKSTEP_HD bool has_pair(std::int64_t column) {
  return column % kClasses != 3 && column % kClasses != 5;
}

LOCKSTEP_HD bf16 a(std::int64_t row, std::int64_t k, std::int64_t depth) {
  const HugePlaces at = huge_places(k / 16, depth);
  const auto place = static_cast<std::uint32_t>(k % 16);
  return place == at.up || place == at.down ? huge(false, row) : small(1, row, k);
}

LOCKSTEP_HD bf16 b(std::int64_t row, std::int64_t k, std::int64_t depth) {
  const std::int64_t group = k / 16;
  const HugePlaces at = huge_places(group, depth);
  const auto place = static_cast<std::uint32_t>(k % 16);
  if (place != at.up && place != at.down) return small(2, row, k);
  if (!has_pair(row)) return {0};
  const std::int64_t groups = depth / 16 + (depth % 16 >= 2 ? 1 : 0);
  const std::uint32_t h = mixed(3, static_cast<std::uint64_t>(row), 0);
  const std::int64_t one = h % groups,
                     other = mixed(4, static_cast<std::uint64_t>(row), 0) % groups;
  const std::int64_t end =
      one > other ? one : other;  // Late ends show more, since all sums before them vanish.
  const std::int64_t back = (h >> 16) % 2 != 0 ? (h >> 20) % 8 : 0;
  const std::int64_t start = back < end ? end - back : 0;
  if (place == at.up && group == (back == 0 ? end : start)) return huge(false, row);
  if (place == at.down && group == end) return huge(true, row);
  return {0};
}

// The accumulator's value before the product: a number, or where the sum is subnormal a subnormal
// number or -0.
LOCKSTEP_HD float c(std::int64_t row, std::int64_t col) {
  const std::uint32_t h =
      mixed(5, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(col));
  if (is_tiny(row) && is_tiny(col)) return from_bits(h % 4 == 0 ? 0x80000000u : h & 0x807fffffu);
  return from_bits((h & 0x80000000u) | ((120 + (h >> 24) % 20) << 23) | (h & 0x7fffffu));
}

// An element of an m x n result that is compared with the model: first the corners, then every
// class of row and column that the result has, then random elements.
struct StepLocation {
  std::int64_t row, col;
};
inline constexpr int kPlaces = 64;
LOCKSTEP_HD std::int64_t moved_to(std::int64_t at, std::int64_t size, std::int64_t row_class) {
  const std::int64_t moved = at / kClasses * kClasses + row_class;
  return moved < size ? moved : at;
}
LOCKSTEP_HD StepLocation place(const Product& p, int index) {
  if (index < 4) return {index % 2 != 0 ? p.m - 1 : 0, index / 2 != 0 ? p.n - 1 : 0};
  const auto at = static_cast<std::uint64_t>(index);
  const auto row = static_cast<std::int64_t>(mixed(8, at, 0) % static_cast<std::uint64_t>(p.m));
  const auto col = static_cast<std::int64_t>(mixed(9, at, 0) % static_cast<std::uint64_t>(p.n));
  if (index < 12)
    return {moved_to(row, p.m, 3), moved_to(col, p.n, index % 2 != 0 ? 3 : 7)};  // Subnormal.
  if (index < 16) return {moved_to(row, p.m, 5), moved_to(col, p.n, 5)};         // Overflow.
  return {row, col};
}

}  // namespace trial

// How many trials a product takes: fp8 has two, which differ in their scales and in c().
int trials_of(const Product& product);

// Write the factors, and the result's initial values: c() of that trial if it accumulates, else
// NaN.
void write_trial(CUstream_st* stream, const Product& product, void* a, void* b);
void write_trial_result(CUstream_st* stream, const Product& product, int trial, void* c);
// The elements of place(), widened to fp32, [kPlaces].
void gather_trial(CUstream_st* stream, const Product& product, const void* c, float* gathered);
// Adds the number of elements in which two results differ to *count. All NaN are equal.
void count_trial_differences(CUstream_st* stream, const Product& product, const void* one,
                             const void* other, unsigned long long* count);

// Returns element `index` of place() by the model.
float trial_by_the_model(const Product& product, int trial, int index);

}  // namespace lockstep
