#include "scenarios/schema/texts.h"

#include <algorithm>

#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 64 && is_lower_or_digit(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_lower_or_digit(c) || c == '_' || c == '-'; });
}

std::string name_near(const std::string& text) {
  std::string name;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == ' ' || c == '.' || c == '/') c = '-';
    if (is_lower_or_digit(c) || (!name.empty() && (c == '_' || c == '-'))) name += c;
  }
  return name.empty() ? "a-name" : name.substr(0, 64);
}

bool is_pattern(const std::string& text) {
  return !text.empty() && text.size() <= 128 && text.find_first_not_of("M*-E") == std::string::npos;
}

std::string pattern_near(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    const char upper = c == 'm' ? 'M' : c == 'e' ? 'E' : c;
    if (std::string("M*-E").find(upper) != std::string::npos) pattern += upper;
  }
  return "\"" + (pattern.empty() ? "M*-" : pattern.substr(0, 128)) + "\"";
}

bool is_digest(const std::string& text) {
  return text.empty() ||
         (text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos);
}

std::string no_nearest(const std::string&) { return {}; }

}  // namespace

Text name_text() {
  return {"[a-z0-9][a-z0-9_-]{0,63}", R"("pattern":"^[a-z0-9][a-z0-9_-]{0,63}$")", is_name,
          name_near};
}
Text description_text() {
  return {"up to 500 characters", R"("maxLength":500)",
          [](const std::string& t) { return characters(t) <= 500; },
          [](const std::string&) { return std::string("its first 500 characters"); }};
}
Text pattern_text() {
  return {"1 to 128 symbols of M * - E", R"("pattern":"^[M*E-]{1,128}$")", is_pattern,
          pattern_near};
}
Text path_text() {
  return {"the path of a file or folder", R"("minLength":1)",
          [](const std::string& t) { return !t.empty(); }, no_nearest};
}
Text digest_text() {
  return {"32 hex digits in lower case, or \"\"", R"("pattern":"^([0-9a-f]{32})?$")", is_digest,
          [](const std::string&) { return std::string("\"\""); }};
}
Text role_text() {
  return {"the name of a role", R"("minLength":1)", [](const std::string& t) { return !t.empty(); },
          [](const std::string&) { return std::string("assistant"); }};
}

}  // namespace lockstep
