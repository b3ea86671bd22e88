#include "scenarios/syntax/schema_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace lockstep {
namespace {

// Takes the digits at the front of `text`.
std::string_view take_digits(std::string_view& text) {
  const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

std::int64_t saturated(std::string_view digits) {
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return result.ec == std::errc() ? value : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::optional<std::int64_t> parse_int(std::string_view text) {
  const bool negative = take(text, "-");
  const std::string_view digits = take_digits(text);
  if (digits.empty() || !text.empty()) return std::nullopt;
  return negative ? -saturated(digits) : saturated(digits);
}

std::optional<double> parse_number(std::string_view text) {
  const std::string_view whole = text;
  take(text, "-");
  if (take_digits(text).empty()) return std::nullopt;
  if (take(text, ".") && take_digits(text).empty()) return std::nullopt;
  if (take(text, "eE")) {
    take(text, "+-");
    if (take_digits(text).empty()) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (result.ec != std::errc()) return std::numeric_limits<double>::infinity();
  return value + 0.0;  // -0 is 0: equal values have one canonical form.
}

std::optional<Ratio> parse_ratio(std::string_view text) {
  const std::string_view whole = take_digits(text);
  if (whole.empty()) return std::nullopt;
  std::string_view fraction;
  if (take(text, ".")) {
    fraction = take_digits(text);
    if (fraction.empty() || fraction.size() > 6) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  std::string digits(fraction);
  digits.resize(6, '0');
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 1'000'000 - 1;
  return Ratio{std::min(saturated(whole), kMost) * 1'000'000 + saturated(digits)};
}

std::optional<std::int64_t> guess_int(const std::string& text) {
  std::string plain;
  std::copy_if(text.begin(), text.end(), std::back_inserter(plain),
               [](char c) { return c != '_' && c != ','; });
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (plain.empty() || *end != '\0' || !(std::abs(value) < 9e18)) return std::nullopt;
  return std::llround(value);
}

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0), second = byte(1);
  const auto continued = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first >= 0xC2 && first <= 0xDF) return continued(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (first == 0xE0 && second < 0xA0) return 0;
    if (first == 0xED && second > 0x9F) return 0;
    return continued(1) && continued(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0 && second < 0x90) return 0;
    if (first == 0xF4 && second > 0x8F) return 0;
    return continued(1) && continued(2) && continued(3) ? 4 : 0;
  }
  return 0;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string quoted(const std::string& text) {
  constexpr std::size_t kMost = 60;
  std::string shown;
  for (const char c : text.substr(0, kMost))
    shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  while (text.size() > kMost && !shown.empty() && (text[shown.size()] & 0xC0) == 0x80)
    shown.pop_back();
  return "`" + shown + (text.size() > kMost ? "..." : "") + "`";
}

}  // namespace lockstep
