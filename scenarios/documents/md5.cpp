#include "scenarios/documents/md5.h"

#include <bit>
#include <cmath>

namespace lockstep {
namespace {

constexpr std::array<std::array<int, 4>, 4> kShifts{
    {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

// RFC 1321: the integer part of 2^32 * abs(sin(i + 1)), i in radians.
const std::array<std::uint32_t, 64>& sines() {
  static const std::array<std::uint32_t, 64> table = [] {
    std::array<std::uint32_t, 64> values;
    for (int i = 0; i < 64; ++i) {
      values[i] =
          static_cast<std::uint32_t>(std::floor(std::ldexp(std::abs(std::sin(i + 1.0)), 32)));
    }
    return values;
  }();
  return table;
}

std::uint32_t mix(int round, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  switch (round) {
    case 0:
      return (b & c) | (~b & d);
    case 1:
      return (d & b) | (~d & c);
    case 2:
      return b ^ c ^ d;
    default:
      return c ^ (b | ~d);
  }
}

int word_of(int round, int i) {
  constexpr std::array<std::array<int, 2>, 4> kSteps{{{1, 0}, {5, 1}, {3, 5}, {7, 0}}};
  return (kSteps[round][0] * i + kSteps[round][1]) % 16;
}

}  // namespace

void Md5::block(const unsigned char* bytes) {
  std::array<std::uint32_t, 16> words;
  for (int i = 0; i < 16; ++i) {
    words[i] = std::uint32_t{bytes[4 * i]} | std::uint32_t{bytes[4 * i + 1]} << 8 |
               std::uint32_t{bytes[4 * i + 2]} << 16 | std::uint32_t{bytes[4 * i + 3]} << 24;
  }
  auto [a, b, c, d] = state_;
  for (int i = 0; i < 64; ++i) {
    const int round = i / 16;
    const std::uint32_t sum = a + mix(round, b, c, d) + words[word_of(round, i)] + sines()[i];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[round][i % 4]);
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::add(std::string_view bytes) {
  length_ += bytes.size();
  if (!rest_.empty()) {
    const std::string_view filler = bytes.substr(0, 64 - rest_.size());
    rest_ += filler;
    bytes.remove_prefix(filler.size());
    if (rest_.size() < 64) return;
    block(reinterpret_cast<const unsigned char*>(rest_.data()));
    rest_.clear();
  }
  for (; bytes.size() >= 64; bytes.remove_prefix(64))
    block(reinterpret_cast<const unsigned char*>(bytes.data()));
  rest_ = bytes;
}

std::string Md5::hex() {
  const std::uint64_t bits = length_ * 8;
  std::string end(1, '\x80');
  end.resize(1 + (119 - length_ % 64) % 64, '\0');
  for (int i = 0; i < 8; ++i) end += static_cast<char>(bits >> (8 * i));
  add(end);
  std::string text;
  for (const std::uint32_t word : state_) {
    for (int i = 0; i < 8; ++i) text += "0123456789abcdef"[word >> (4 * (i ^ 1)) & 15];
  }
  return text;
}

}  // namespace lockstep
