#include "scenarios/syntax/schema_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
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

// The digits at the front of `text`; "" for 010, which YAML 1.1 reads as 8 and YAML 1.2 as 10.
std::string_view take_whole(std::string_view& text) {
  const std::string_view digits = take_digits(text);
  return digits.size() > 1 && digits.front() == '0' ? std::string_view() : digits;
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

// The code point of one well-formed character.
std::uint32_t code_point(std::string_view character) {
  constexpr std::uint32_t kFirstBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  std::uint32_t code = static_cast<unsigned char>(character[0]) & kFirstBits[character.size()];
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 63u);
  return code;
}

// Characters that a terminal obeys, or that hide what is written.
bool is_obeyed(std::uint32_t code) {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr Range kObeyed[] = {{0, 0x1F},        {0x7F, 0x9F},     {0x61C, 0x61C},
                               {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069},
                               {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
  return std::any_of(std::begin(kObeyed), std::end(kObeyed),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

std::optional<std::int64_t> parse_int(std::string_view text) {
  const bool negative = take(text, "-");
  const std::string_view digits = take_whole(text);
  if (digits.empty() || !text.empty()) return std::nullopt;
  return negative ? -saturated(digits) : saturated(digits);
}

std::optional<double> parse_number(std::string_view text) {
  const std::string_view whole = text;
  take(text, "-");
  if (take_whole(text).empty()) return std::nullopt;
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
  const std::string_view whole = take_whole(text);
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

// Multiplies by a unit: k, M or G, with or without an i and a B; "" is none. False for other text.
static bool times_unit(std::string_view unit, double& value) {
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return true;
  const std::size_t power = std::string_view("kmg").find(
      static_cast<char>(std::tolower(static_cast<unsigned char>(unit.front()))));
  if (power == std::string_view::npos) return false;
  for (std::size_t i = 0; i <= power; ++i) value *= 1024;
  const std::string_view rest = unit.substr(1);
  return rest.empty() || rest == "i" || rest == "B" || rest == "b" || rest == "iB";
}

std::optional<std::int64_t> guess_int(const std::string& text) {
  std::string plain;
  std::copy_if(text.begin(), text.end(), std::back_inserter(plain),
               [](char c) { return c != '_' && c != ','; });
  char* end = nullptr;
  double value = std::strtod(plain.c_str(), &end);
  if (end == plain.c_str() || !times_unit(end, value) || !(std::abs(value) < 9e18))
    return std::nullopt;
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

std::string shown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = utf8_length(text);
    const std::uint32_t code = bytes == 0 ? 0 : code_point(text.substr(0, bytes));
    char escape[16] = "";
    if (bytes <= 1 && (bytes == 0 || is_obeyed(code))) {
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(text.front()));
    } else if (is_obeyed(code)) {
      std::snprintf(escape, sizeof escape, "\\u%04x", code);
    }
    out += *escape != '\0' ? std::string_view(escape) : text.substr(0, bytes);
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}

std::string shown_lines(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t end = text.find('\n');
    out += shown(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string as_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = utf8_length(text);
    out += bytes == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, bytes);
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}

std::string quoted(const std::string& text) {
  constexpr std::size_t kMost = 60;
  std::size_t end = std::min(text.size(), kMost);
  // Not within a character.
  while (end < text.size() && end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return "`" + shown(std::string_view(text).substr(0, end)) + (end < text.size() ? "..." : "") +
         "`";
}

}  // namespace lockstep
