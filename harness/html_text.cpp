#include "harness/html_text.h"

namespace lockstep {
namespace {

// Bytes of the character at the front, 0 where it is no UTF-8 or a control character.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return (first >= 0x20 && first != 0x7F) || first == '\n' || first == '\t' ? 1 : 0;
  const std::size_t bytes = first >= 0xF0 && first <= 0xF4  ? 4
                            : first >= 0xE0 && first < 0xF0 ? 3
                            : first >= 0xC2                 ? 2
                                                            : 0;
  if (first > 0xF4) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return 0;
  }
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : bytes;
}

}  // namespace

std::string html(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const char c = text.front();
    if (bytes == 0) {
      safe += "\xEF\xBF\xBD";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return safe;
}

std::string element(const char* tag, const char* name, std::string_view text) {
  const std::string open = *name == '\0' ? "" : std::string(" class=\"") + name + "\"";
  return "<" + std::string(tag) + open + ">" + html(text) + "</" + tag + ">";
}

}  // namespace lockstep
