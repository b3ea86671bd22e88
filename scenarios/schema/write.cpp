// Values as text: JSON for the canonical form, the same in plain YAML for people.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "scenarios/schema/types.h"

namespace lockstep {
namespace {

// Whether YAML 1.1 and 1.2 both read the text as itself without quotes.
bool is_plain(const std::string& text) {
  static const std::vector<std::string> special{"null", "true", "false", "yes", "no",
                                                "on",   "off",  "y",     "n"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_fine = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/';
  };
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), is_fine) &&
         std::find(special.begin(), special.end(), lower) == special.end();
}

std::string json_string(const std::string& text) {
  static const char* digits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += std::string("\\u00") + digits[byte >> 4] + digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string joined(const std::vector<std::string>& items, Style style) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += style == Style::json ? "," : ", ";
    text += item;
  }
  return text;
}

}  // namespace

std::string write_text(const std::string& text, Style style) {
  return style == Style::yaml && is_plain(text) ? text : json_string(text);
}

std::string write_number(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

std::string write_ratio(Ratio value) {
  std::string text = std::to_string(value.millionths / 1'000'000);
  std::string fraction = std::to_string(1'000'000 + value.millionths % 1'000'000).substr(1);
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return fraction.empty() ? text : text + "." + fraction;
}

std::string write_list(const std::vector<std::string>& items, Style style) {
  return "[" + joined(items, style) + "]";
}

std::string write_record(const std::vector<std::pair<std::string, std::string>>& fields,
                         Style style) {
  std::vector<std::string> items;
  for (const auto& [name, value] : fields) {
    items.push_back(style == Style::json ? json_string(name) + ":" + value : name + ": " + value);
  }
  return "{" + joined(items, style) + "}";
}

}  // namespace lockstep
