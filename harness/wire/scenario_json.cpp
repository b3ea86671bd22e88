#include "harness/wire/scenario_json.h"

#include <charconv>

namespace lockstep::wire {
namespace {

void append_text(std::string& out, const boost::json::value& value) {
  if (const auto* object = value.if_object()) {
    out += '{';
    for (const boost::json::key_value_pair& item : *object) {
      if (out.back() != '{') out += ", ";
      out += boost::json::serialize(boost::json::string(item.key())) + ": ";
      append_text(out, item.value());
    }
    out += '}';
  } else if (const auto* array = value.if_array()) {
    out += '[';
    for (const boost::json::value& item : *array) {
      if (out.back() != '[') out += ", ";
      append_text(out, item);
    }
    out += ']';
  } else if (const auto* number = value.if_double()) {
    char digits[512];
    const auto end =
        std::to_chars(digits, digits + sizeof digits, *number, std::chars_format::fixed);
    out.append(digits, end.ptr);
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

std::string scenario_text(const boost::json::value& value) {
  std::string text;
  append_text(text, value);
  return text;
}

}  // namespace lockstep::wire
