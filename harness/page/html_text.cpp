#include "harness/page/html_text.h"

#include "harness/base/markup.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
}

}  // namespace

std::string html(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t bytes = is_control(c) ? 0 : utf8_length(text);
    if (bytes == 0) {
      safe += "\xEF\xBF\xBD";
    } else if (const char* const entity = entity_of(c)) {
      safe += entity;
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
