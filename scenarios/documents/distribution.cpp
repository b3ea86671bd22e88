// Document lengths drawn from a distribution. Integers decide: std::*_distribution differs between
// C++ libraries and std::exp between libms, and one token more or less would be another scenario.
// So shapes are fixed point.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "scenarios/documents/documents.h"
#include "scenarios/documents/layout.h"
#include "scenarios/documents/random.h"

namespace lockstep {
namespace {

// Draws of the pack as a whole lie beyond those of any document.
constexpr std::int64_t kCountIndex = 1 << 20;
constexpr std::int64_t kGiantPlace = kCountIndex + 1;

// 2^(y / 2^20) in 30 fraction bits, for the fraction of y: the product of the roots 2^(1/2),
// 2^(1/4), ... that y names.
std::int64_t power_of_two_fraction(std::int64_t y) {
  static constexpr std::array<std::int64_t, 20> kRoots{
      0x5a827999, 0x4c1bf828, 0x45cae0f1, 0x42d561b3, 0x4166c34c, 0x40b268f9, 0x4058f6a7,
      0x402c6be9, 0x4016321b, 0x400b1817, 0x40058bce, 0x4002c5d7, 0x400162e8, 0x4000b173,
      0x400058b9, 0x40002c5c, 0x4000162e, 0x40000b17, 0x4000058b, 0x400002c5};
  std::int64_t power = std::int64_t{1} << 30;
  for (int k = 0; k < 20; ++k) {
    if (y >> (19 - k) & 1) power = (power * kRoots[k]) >> 30;
  }
  return power;
}

// Draws the lengths of one pack, one document after the other.
class PackedBatch {
 public:
  PackedBatch(const Scenario::Data& data, std::int64_t step, std::int64_t microbatch)
      : data_(data), shape_(data.distribution), step_(step), microbatch_(microbatch) {
    // Both factors are below 2^21, so the product is exact.
    rows_left_ = data.pack_length * shape_.fill.millionths / 1'000'000;
    longest_ = std::min(shape_.max, longest_fitting(data));
    shortest_ = std::min(shape_.min, longest_);
    documents_wanted_ = count();
  }

  MicrobatchLengths draw_all() {
    while (static_cast<std::int64_t>(lengths_.size()) < documents_wanted_ && add_document()) {
    }
    if (shape_.shape == Shape::one_giant && !lengths_.empty()) {
      const std::int64_t place =
          scaled(word(kGiantPlace, 0), static_cast<std::int64_t>(lengths_.size()));
      std::swap(lengths_.front(), lengths_[place]);
    }
    return std::move(lengths_);
  }

 private:
  std::uint32_t word(std::int64_t document, std::int64_t index) const {
    return draw(shape_.seed, Purpose::length, {step_, microbatch_, document}, index);
  }

  // False when the pack is as full as it should be. The last document is shortened to the rows that
  // are left.
  bool add_document() {
    const auto number = static_cast<std::int64_t>(lengths_.size());
    if (happens(word(number, 0), shape_.empty.millionths)) {
      lengths_.push_back(0);
      return true;
    }
    const std::int64_t fitting = rows_left_ / data_.align * data_.align - data_.gaps;
    const std::int64_t wanted = wanted_length(number);
    const std::int64_t length = std::min(wanted, std::max<std::int64_t>(0, fitting));
    if (length < wanted && length < std::max<std::int64_t>(shortest_, 1)) return false;
    lengths_.push_back(length);
    rows_left_ -= slot_rows(length, data_.gaps, data_.align);
    return true;
  }

  std::int64_t between(std::int64_t low, std::int64_t high, std::int64_t document) const {
    return low + scaled(word(document, 1), high - low + 1);
  }

  std::int64_t wanted_length(std::int64_t number) const {
    switch (shape_.shape) {
      case Shape::uniform:
        return between(shortest_, longest_, number);
      case Shape::lognormal:
        return std::clamp(lognormal(number), shortest_, longest_);
      case Shape::equal:
        return longest_;
      case Shape::one_giant:  // The giant is drawn first and moved to its place afterwards.
        return number == 0 ? longest_
                           : between(shortest_, shortest_ + (longest_ - shortest_) / 8, number);
      case Shape::many_tiny:
        return between(shortest_, std::min(longest_, shortest_ + 3), number);
      case Shape::measured:
      case Shape::published:
      case Shape::histogram:
        return filling_length(number);
    }
    return shortest_;
  }

  // median * e^(sigma * z). z is a sum of 12 uniforms, which is near enough to normal and needs no
  // logarithm.
  std::int64_t lognormal(std::int64_t number) const {
    constexpr std::int64_t kLog2E = 1'512'775;  // In 20 fraction bits.
    // In 16 fraction bits; the mean of a 16-bit uniform is 1/2 - 2^-17.
    std::int64_t z = -6 * 65536 + 6;
    for (int i = 1; i <= 12; ++i) z += word(number, i) >> 16;
    // In 20 fraction bits. |sigma * z| < 4e6 * 6 * 2^16 and log2(e) * 2^20 < 2^21: the product
    // stays below 2^62.
    const std::int64_t exponent = (shape_.sigma.millionths * z * kLog2E / 1'000'000) >> 16;
    // 2^21 tokens are more than any pack.
    const std::int64_t whole = std::clamp<std::int64_t>(exponent >> 20, -40, 21);
    const std::int64_t scaled_median =
        shape_.median * power_of_two_fraction(exponent & 0xfffff) >> 10;
    return (whole >= 0 ? scaled_median << whole : scaled_median >> -whole) >> 20;
  }

  struct Point {
    std::int64_t share, documents;  // Share of the packs, in 2^32.
  };

  // The most documents of the pack.
  std::int64_t count() const {
    constexpr std::int64_t kAll = std::int64_t{1} << 32;
    constexpr Point kLeast{0, 1}, kMedian{kAll / 2, 12}, kP90{kAll * 9 / 10, 43},
        kP96{kAll * 96 / 100, 64}, kP99{kAll * 99 / 100, 106}, kMost{kAll, 358};
    static constexpr std::array kMeasured{kLeast, kMedian, kP90, kP99, kMost};
    static constexpr std::array kPublished{kLeast, kMedian, kP90, kP96, kP99, kMost};
    switch (shape_.shape) {
      case Shape::measured:
        return count_between(kMeasured);
      case Shape::published:
        return count_between(kPublished);
      case Shape::histogram:
        return count_of_histogram();
      default:
        return data_.pack_length;
    }
  }

  // Straight lines between the points.
  std::int64_t count_between(std::span<const Point> points) const {
    const std::int64_t at = word(kCountIndex, 0);
    std::size_t i = 1;
    while (at >= points[i].share) ++i;
    const auto [low, high] = std::pair{points[i - 1], points[i]};
    return low.documents +
           (at - low.share) * (high.documents - low.documents) / (high.share - low.share);
  }

  std::int64_t count_of_histogram() const {
    std::int64_t all = 0;
    for (const auto& pair : shape_.histogram) all += pair[1];
    std::int64_t left = scaled(word(kCountIndex, 0), all);
    for (const auto& pair : shape_.histogram) {
      if (left < pair[1]) return pair[0];
      left -= pair[1];
    }
    return 0;  // No pair, which L10 refuses.
  }

  // Up to twice the mean of what is left, so that the documents of the pack fill it.
  std::int64_t filling_length(std::int64_t number) const {
    const std::int64_t documents_left = documents_wanted_ - number;
    const std::int64_t mean = rows_left_ / documents_left - data_.gaps;
    const std::int64_t high = std::clamp(2 * mean - 1, shortest_, longest_);
    return documents_left == 1
               ? std::clamp(mean, shortest_, longest_)
               : between(std::min(std::max<std::int64_t>(shortest_, 1), high), high, number);
  }

  const Scenario::Data& data_;
  const Scenario::Data::Distribution& shape_;
  std::int64_t step_, microbatch_;
  std::int64_t rows_left_ = 0, longest_ = 0, shortest_ = 0, documents_wanted_ = 0;
  MicrobatchLengths lengths_;
};

}  // namespace

MicrobatchLengths drawn_lengths(const Scenario::Data& data, std::int64_t step,
                                std::int64_t microbatch) {
  return PackedBatch(data, step, microbatch).draw_all();
}

}  // namespace lockstep
