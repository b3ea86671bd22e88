// Random dot products of families that look for the edges of FDA16, and every fast form against the
// scalar text.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "oracle/arithmetic/fda16.h"
#include "oracle/arithmetic/fda16_fast.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {

enum class Family {
  normal,       // N(0, 1).
  six,          // Exponents -6 to 6.
  fifteen,      // Exponents -15 to 15.
  cancelling,   // The second half of each group takes back the first but for one bit.
  tiny,         // Products below 2^-133, where E stays.
  zero_huge,    // Zeros against the largest numbers.
  special,      // Inf and NaN among numbers.
  subnormal,    // Subnormal factors against large ones.
  overflowing,  // Sums around 2^128.
  largest_sum,  // Significands near 2 and equal exponents: sums beyond 31 bits of the grid.
  any_bits,     // Every pattern of 16 bits.
};
inline constexpr Family kFamilies[] = {Family::normal,      Family::six,       Family::fifteen,
                                       Family::cancelling,  Family::tiny,      Family::zero_huge,
                                       Family::special,     Family::subnormal, Family::overflowing,
                                       Family::largest_sum, Family::any_bits};

// Words of a Philox stream.
class Words {
 public:
  explicit Words(std::uint32_t seed) : seed_(seed) {}
  std::uint32_t next() {
    if (count_ % 4 == 0) block_ = philox(seed_, 2, {count_ / 4, 0, 0, 0});
    return block_[count_++ % 4];
  }
  int between(int low, int high) {
    return low + static_cast<int>(next() % static_cast<std::uint32_t>(high - low + 1));
  }

 private:
  std::uint32_t seed_, count_ = 0;
  PhiloxCounter block_{};
};

inline float widened(std::uint32_t half) { return from_bits(half << 16); }

// A bf16 number of an exponent field between low and high.
inline float of_field(Words& words, int low, int high) {
  const std::uint32_t word = words.next();
  return widened((word & 0x807fu) | static_cast<std::uint32_t>(words.between(low, high)) << 7);
}

inline float factor(Family family, Words& words, bool left) {
  const int choice = words.between(0, 9);
  switch (family) {
    case Family::normal: {
      const float u = add(mul(static_cast<float>(words.next() >> 8), 0x1p-24f), 0x1p-25f);
      const float angle = mul(static_cast<float>(words.next() >> 8), 0x1.921fb6p-22f);
      return Bf16::st(std::sqrt(-2.0f * std::log(u)) * std::cos(angle));
    }
    case Family::six:
    case Family::cancelling:
      return of_field(words, 121, 133);
    case Family::fifteen:
      return of_field(words, 112, 142);
    case Family::tiny:
      return of_field(words, left ? 0 : 90, left ? 2 : 113);
    case Family::zero_huge:
      return choice < 5    ? widened(choice % 2 == 0 ? 0x8000u : 0u)
             : choice == 9 ? of_field(words, 100, 130)
                           : of_field(words, 190, 254);
    case Family::special:
      if (words.between(0, 30) != 0) return choice == 0 ? 0.0f : of_field(words, 120, 134);
      return choice < 4    ? widened(choice % 2 == 0 ? 0x7f80u : 0xff80u)
             : choice == 4 ? widened(0x7fffu)
                           : 0.0f;
    case Family::subnormal:
      return left ? of_field(words, 0, 1) : of_field(words, choice < 3 ? 0 : 150, 254);
    case Family::overflowing:
      return of_field(words, 188, 192);
    case Family::largest_sum:
      return widened(0x3f7cu + (words.next() & 3u) + (choice == 0 ? 0x8000u : 0u));
    default:
      return widened(words.next() & 0xffffu);
  }
}

inline float start_of(Family family, Words& words) {
  const int choice = words.between(0, 5);
  if (choice == 0 || (family == Family::tiny && choice < 4))
    return words.between(0, 1) != 0 ? 0.0f : -0.0f;
  if (family == Family::any_bits || (family == Family::special && choice == 1))
    return from_bits(words.next());
  const int field = family == Family::tiny          ? words.between(0, 3)
                    : family == Family::zero_huge   ? words.between(0, 130)
                    : family == Family::overflowing ? words.between(250, 254)
                    : family == Family::subnormal   ? words.between(0, 254)
                    : family == Family::largest_sum ? words.between(126, 128)
                                                    : words.between(115, 140);
  return from_bits((words.next() & 0x807fffffu) | static_cast<std::uint32_t>(field) << 23);
}

struct Product {
  std::int64_t rows, cols, depth;
  std::vector<float> a, b, c;  // [rows, depth], [depth, cols], [rows, cols]
};

inline Product any_product(Family family, Words& words, std::int64_t rows, std::int64_t cols,
                           std::int64_t depth) {
  Product product{rows, cols, depth, {}, {}, {}};
  for (std::int64_t e = 0; e < rows * depth; ++e) product.a.push_back(factor(family, words, true));
  for (std::int64_t e = 0; e < depth * cols; ++e) product.b.push_back(factor(family, words, false));
  for (std::int64_t e = 0; e < rows * cols; ++e) product.c.push_back(start_of(family, words));
  if (family != Family::cancelling) return product;
  for (std::int64_t k = 0; k < depth; ++k) {
    if (k % 16 < 8) continue;
    for (std::int64_t i = 0; i < rows; ++i)
      product.a[i * depth + k] = neg(product.a[i * depth + k - 8]);
    for (std::int64_t j = 0; j < cols; ++j) product.b[k * cols + j] = product.b[(k - 8) * cols + j];
    if (k % 16 == 15)
      product.a[words.between(0, static_cast<int>(rows) - 1) * depth + k] =
          factor(family, words, true);
  }
  return product;
}

// A fast form against the scalar text on `dots` dot products of 32 terms; the first difference, or
// "".
inline std::string first_difference(Fda16Form form, Family family, std::uint32_t seed,
                                    std::int64_t dots) {
  Words words(seed);
  const std::int64_t rows = 40, cols = 48, depth = 32;
  std::vector<std::uint16_t> a(depth), b(depth);
  for (std::int64_t done = 0; done < dots; done += rows * cols) {
    const Product product = any_product(family, words, rows, cols, depth);
    std::vector<float> c = product.c;
    fda16_dots(rows, cols, Terms{.last = depth}, depth, Left<float>{product.a.data(), depth, 1},
               Right<float>{product.b.data(), cols}, c.data(), cols, Chain::middle, form);
    for (std::int64_t e = 0; e < rows * cols; ++e) {
      for (std::int64_t k = 0; k < depth; ++k) {
        a[k] = static_cast<std::uint16_t>(bits(product.a[e / cols * depth + k]) >> 16);
        b[k] = static_cast<std::uint16_t>(bits(product.b[k * cols + e % cols]) >> 16);
      }
      const float want = fda16_dot(a.data(), b.data(), depth, product.c[e]);
      if (bits(c[e]) != bits(want)) {
        return "family " + std::to_string(static_cast<int>(family)) + ", seed " +
               std::to_string(seed) + ", dot " + std::to_string(done + e) + ": " +
               std::to_string(bits(c[e])) + " instead of " + std::to_string(bits(want));
      }
    }
  }
  return "";
}

}  // namespace lockstep::oracle
