#include "harness/recount/draws.h"

#include <algorithm>
#include <array>
#include <utility>

#include "harness/recount/layout.h"
#include "kernels/core/at.h"

namespace lockstep::recount {
namespace {

constexpr std::int64_t kOne = std::int64_t{1} << 30;  // 1 in 30 fraction bits.

__extension__ using Wide = unsigned __int128;

// The greatest number whose square is at most `value`, which is below 2^126.
Wide square_root(Wide value) {
  Wide low = 0, high = Wide{1} << 63;
  while (low + 1 < high) {
    const Wide middle = (low + high) / 2;
    (middle * middle <= value ? low : high) = middle;
  }
  return low;
}

// The roots 2^(1/2), 2^(1/4), ... in 30 fraction bits. Each is the square root of the one before,
// in 60 fraction bits.
std::array<std::int64_t, 20> roots_of_two() {
  std::array<std::int64_t, 20> roots{};
  Wide square = Wide{1} << 121;  // 2 in 120 fraction bits.
  for (std::int64_t& root : roots) {
    const Wide fine = square_root(square);
    root = static_cast<std::int64_t>(fine >> 30);
    square = fine << 60;
  }
  return roots;
}

// value / 2^bits, rounded toward negative infinity.
std::int64_t shifted(std::int64_t value, int bits) { return value >> bits; }

class DrawnPack {
 public:
  DrawnPack(const Scenario::Data& data, std::int64_t step, std::int64_t microbatch)
      : data_(data), keys_(data.distribution), place_{step, microbatch, 0} {
    left_ = data.pack_length * keys_.fill.millionths / 1'000'000;
    high_ = std::min(keys_.max, longest_document(data));
    low_ = std::min(keys_.min, high_);
    switch (keys_.shape) {
      case Shape::measured:
      case Shape::published:
        count_ = count_on_lines();
        break;
      case Shape::histogram:
        count_ = count_of_pairs();
        break;
      default:
        count_ = data.pack_length;
    }
  }

  MicrobatchLengths draw() {
    MicrobatchLengths lengths;
    for (std::int64_t document = 0; document < count_; ++document) {
      std::int64_t length = 0;
      if (!happens(drawn(document, 0), keys_.empty)) {
        const std::int64_t wanted = wanted_length(document);
        const std::int64_t room = left_ - left_ % data_.align - data_.gaps;
        length = std::min(wanted, std::max<std::int64_t>(room, 0));
        if (length < wanted && length < std::max<std::int64_t>(low_, 1)) break;
      }
      left_ -= rows_of_slot(data_, length);
      lengths.push_back(length);
    }
    if (keys_.shape == Shape::one_giant && !lengths.empty()) {
      const std::int64_t other = choose(drawn((1 << 20) + 1, 0), std::ssize(lengths));
      std::swap(lengths.front(), at(lengths, other));
    }
    return lengths;
  }

 private:
  std::uint32_t drawn(std::int64_t document, std::int64_t index) const {
    return word(keys_.seed, Drawn::length, {place_.step, place_.microbatch, document}, index);
  }
  std::int64_t between(std::int64_t document, std::int64_t low, std::int64_t high) const {
    return low + choose(drawn(document, 1), high - low + 1);
  }

  std::int64_t wanted_length(std::int64_t document) const {
    switch (keys_.shape) {
      case Shape::equal:
        return high_;
      case Shape::uniform:
        return between(document, low_, high_);
      case Shape::many_tiny:
        return between(document, low_, std::min(high_, low_ + 3));
      case Shape::one_giant:
        return document == 0 ? high_ : between(document, low_, low_ + (high_ - low_) / 8);
      case Shape::lognormal:
        return std::clamp(lognormal(document), low_, high_);
      case Shape::measured:
      case Shape::published:
      case Shape::histogram:
        break;
    }
    const std::int64_t documents_left = count_ - document;
    const std::int64_t mean = left_ / documents_left - data_.gaps;
    if (documents_left == 1) return std::clamp(mean, low_, high_);
    const std::int64_t most = std::clamp(2 * mean - 1, low_, high_);
    return between(document, std::min(std::max<std::int64_t>(low_, 1), most), most);
  }

  std::int64_t lognormal(std::int64_t document) const {
    static const std::array<std::int64_t, 20> roots = roots_of_two();
    std::int64_t z = 6 - 6 * 65536;
    for (int i = 1; i <= 12; ++i) z += drawn(document, i) / 65536;
    const std::int64_t x = shifted(keys_.sigma.millionths * z * 1512775 / 1'000'000, 16);
    std::int64_t power = kOne;
    for (int k = 0; k < 20; ++k) {
      if ((x >> (19 - k)) % 2 != 0) power = shifted(power * at(roots, k), 30);
    }
    const std::int64_t value = shifted(keys_.median * power, 10);
    const int e = static_cast<int>(std::clamp<std::int64_t>(shifted(x, 20), -40, 21));
    return shifted(e >= 0 ? value << e : shifted(value, -e), 20);
  }

  std::int64_t count_on_lines() const {
    constexpr std::int64_t all = std::int64_t{1} << 32;
    std::vector<std::pair<std::int64_t, std::int64_t>> points{
        {0, 1}, {all / 2, 12}, {all * 9 / 10, 43}, {all * 99 / 100, 106}, {all, 358}};
    if (keys_.shape == Shape::published) points.insert(points.begin() + 3, {all * 96 / 100, 64});
    const std::int64_t w = drawn(1 << 20, 0);
    std::int64_t i = std::ssize(points) - 2;
    while (at(points, i).first > w) --i;
    const auto& [x0, y0] = at(points, i);
    const auto& [x1, y1] = at(points, i + 1);
    return y0 + (w - x0) * (y1 - y0) / (x1 - x0);
  }

  std::int64_t count_of_pairs() const {
    std::int64_t packs = 0, upto = 0;
    for (const auto& pair : keys_.histogram) packs += pair.back();
    const std::int64_t chosen = choose(drawn(1 << 20, 0), packs);
    const auto reached = std::ranges::find_if(
        keys_.histogram, [&](const auto& pair) { return (upto += pair.back()) > chosen; });
    return reached->front();
  }

  const Scenario::Data& data_;
  const Scenario::Data::Distribution& keys_;
  const Place place_;
  std::int64_t left_ = 0, low_ = 0, high_ = 0, count_ = 0;
};

}  // namespace

std::uint32_t word(std::int64_t seed, Drawn purpose, const Place& place, std::int64_t index) {
  const auto bits = static_cast<std::uint64_t>(seed);
  std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(bits),
                                   static_cast<std::uint32_t>(bits >> 32) ^ 0x444F4353u};
  const std::int64_t last = place.microbatch + (static_cast<std::int64_t>(purpose) << 16);
  std::array<std::uint32_t, 4> c{
      static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(place.document),
      static_cast<std::uint32_t>(place.step), static_cast<std::uint32_t>(last)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = 0xD2511F53ull * c[0], second = 0xCD9E8D57ull * c[2];
    c = {static_cast<std::uint32_t>(second >> 32) ^ c[1] ^ key[0],
         static_cast<std::uint32_t>(second),
         static_cast<std::uint32_t>(first >> 32) ^ c[3] ^ key[1],
         static_cast<std::uint32_t>(first)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c[0];
}

std::int64_t choose(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>(
      static_cast<std::uint64_t>(word) * static_cast<std::uint64_t>(count) >> 32);
}

bool happens(std::uint32_t word, Ratio chance) {
  return static_cast<std::uint64_t>(word) * 1'000'000 <
         static_cast<std::uint64_t>(chance.millionths) << 32;
}

MicrobatchLengths lengths_of_pack(const Scenario::Data& data, std::int64_t step,
                                  std::int64_t microbatch) {
  return DrawnPack(data, step, microbatch).draw();
}

}  // namespace lockstep::recount
