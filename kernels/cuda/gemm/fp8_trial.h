// The random product by which an algorithm is admitted for fp8 codes, as product_trial.h has it for
// bf16: another order of the sums shows in the stored result. Magnitudes change by row and by run.
#pragma once

#include "kernels/core/fp8.h"
#include "kernels/cuda/gemm/product_trial.h"

namespace lockstep::trial {

// A number of either sign, of which the exponent depends on row and run too.
template <class F>
LOCKSTEP_HD F small_code(std::uint64_t which, std::int64_t row, std::int64_t k) {
  constexpr std::uint32_t kLeast = F::kBias - 6;  // 2^-6: the least normal number of e4m3.
  const std::uint32_t h =
      mixed(which, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k));
  const std::uint32_t run =
      mixed(which + 2, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k / kFp8Run));
  const std::uint32_t field = kLeast + h % 5 + run % 4;
  return {static_cast<std::uint8_t>(((h >> 8) & 0x80u) | field << F::kFraction |
                                    ((h >> 16) & ((1u << F::kFraction) - 1u)))};
}

// Eight places of the first group of each run may be loud. In most columns one run has products of
// +2^17 there and a later one of -2^17: what is added in between is rounded to a coarse grid, and
// what shares their runs is truncated away. Sums of one run have no such places.
LOCKSTEP_HD bool is_loud(std::int64_t k, std::int64_t depth) {
  return depth > kFp8Run && k % kFp8Run < kFp8Group / 2 && k % 2 == 0;
}
template <class F>
LOCKSTEP_HD F loud_code(bool negative) {
  constexpr std::uint32_t k448 = (F::kBias + 8) << F::kFraction | (3u << F::kFraction) / 4;
  return {static_cast<std::uint8_t>((negative ? 0x80u : 0u) | k448)};
}
// Two products of one group of each run, +2^10 and -2^10, both in its second half: in one step they
// truncate every product of the first half, in two steps only their sum. 0: neither of the two.
LOCKSTEP_HD int truncating_sign(std::int64_t k, std::int64_t depth) {
  const std::int64_t group = depth > kFp8Run ? 2 : 0, place = k % kFp8Run - group * kFp8Group;
  const bool whole = k / kFp8Run * kFp8Run + (group + 1) * kFp8Group <= depth;
  return !whole ? 0 : place == 19 ? 1 : place == 25 ? -1 : 0;
}
template <class F>
LOCKSTEP_HD F truncating_code(bool negative) {
  return {static_cast<std::uint8_t>((negative ? 0x80u : 0u) |
                                    static_cast<std::uint32_t>(F::kBias + 5) << F::kFraction)};
}

// One row in 64 has a NaN.
template <class F>
LOCKSTEP_HD F a_code(std::int64_t row, std::int64_t k, std::int64_t depth) {
  if (row % 64 == 37 && k == static_cast<std::int64_t>(mixed(6, 0, 0)) % depth) return {0x7f};
  if (truncating_sign(k, depth) != 0) return truncating_code<F>(false);
  return is_loud(k, depth) ? loud_code<F>(false) : small_code<F>(11, row, k);
}

LOCKSTEP_HD e4m3 b_code(std::int64_t row, std::int64_t k, std::int64_t depth) {
  const int sign = truncating_sign(k, depth);
  if (sign != 0) return truncating_code<e4m3>(sign < 0);
  if (!is_loud(k, depth)) return small_code<e4m3>(12, row, k);
  if (!has_pair(row)) return {0};
  const std::int64_t runs = (depth + kFp8Run - 1) / kFp8Run, run = k / kFp8Run;
  const auto drawn = [row](std::uint64_t which, std::int64_t below) {
    return static_cast<std::int64_t>(mixed(which, static_cast<std::uint64_t>(row), 0)) % below;
  };
  const std::int64_t begin = drawn(15, runs - 1), end = begin + 1 + drawn(16, runs - 1 - begin);
  return run == begin || run == end ? loud_code<e4m3>(run == end) : e4m3{0};
}

// The scales of the two trials of a product: nearly the least and the largest of its types. All
// results are normal numbers then.
struct Scales {
  float a, b;
};
inline constexpr int kFp8Trials = 2;
LOCKSTEP_HD Scales scales(const Product& p, int which) {
  const std::int32_t a = (p.factors == Factors::e5m2_e4m3 ? e5m2::kCap : e4m3::kCap) - 1;
  const std::int32_t sign = which == 0 ? -1 : 1;
  return {fp8_power(sign * a), fp8_power(sign * (e4m3::kCap - 3))};
}
// The accumulator's value before the product, of about the product's magnitude.
LOCKSTEP_HD float c_of_codes(const Product& p, int which, std::int64_t row, std::int64_t col) {
  const std::uint32_t h =
      mixed(5, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(col));
  const Scales s = scales(p, which);
  return mul(from_bits((h & 0x80000000u) | ((122 + (h >> 24) % 8) << 23) | (h & 0x7fffffu)),
             mul(s.a, s.b));
}

}  // namespace lockstep::trial
