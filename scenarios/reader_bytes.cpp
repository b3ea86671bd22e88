// Rule Y01 on the bytes of a file: size, encoding, control bytes, nesting. The parser sees only what passes.
#include <string>

#include "scenarios/reader_node.h"

namespace lockstep {
namespace {

// Deeper than any legal file, shallower than what a recursive parser can bear.
constexpr int kParserDepth = 400;

// Length of the UTF-8 sequence at `at`, 0 where there is none (overlong forms and surrogates are none).
int utf8_length(const std::string& bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  const auto continued = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continued(at + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (first == 0xE0 && second < 0xA0) return 0;
    if (first == 0xED && second > 0x9F) return 0;
    return continued(at + 1) && continued(at + 2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0 && second < 0x90) return 0;
    if (first == 0xF4 && second > 0x8F) return 0;
    return continued(at + 1) && continued(at + 2) && continued(at + 3) ? 4 : 0;
  }
  return 0;
}

bool is_control(const std::string& bytes, std::size_t at) {
  const auto byte = static_cast<unsigned char>(bytes[at]);
  if (byte == '\r') return at + 1 >= bytes.size() || bytes[at + 1] != '\n';
  return (byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7F;
}

std::string hex(unsigned char byte) {
  const char* digits = "0123456789abcdef";
  return std::string("0x") + digits[byte >> 4] + digits[byte & 15];
}

// Walks the lines with as much of YAML's grammar as telling brackets from text takes: quotes and comments.
class NestingScan {
 public:
  // Whether `byte` opens a level too many.
  bool too_deep(char byte) {
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\' && quote_ == '"') {
        escaped_ = true;
      } else if (byte == quote_) {
        quote_ = 0;
      }
      return false;
    }
    if (byte == '\n') {
      in_comment_ = false;
      indent_ = 0;
      at_indent_ = true;
      starts_token_ = true;
      return false;
    }
    if (in_comment_) return false;
    if (at_indent_) {
      at_indent_ = byte == ' ' || byte == '-' || byte == '?';
      if (byte == '-' || byte == '?') ++indent_;
    }
    if (starts_token_ && (byte == '"' || byte == '\'')) quote_ = byte;
    if (starts_token_ && byte == '#') in_comment_ = true;
    if (byte == '[' || byte == '{') ++flow_;
    if ((byte == ']' || byte == '}') && flow_ > 0) --flow_;
    starts_token_ = byte == ' ' || byte == '\t' || byte == '[' || byte == '{' || byte == ',' || byte == ':';
    return flow_ > kParserDepth || indent_ > kParserDepth;
  }

 private:
  char quote_ = 0;
  bool escaped_ = false, in_comment_ = false, at_indent_ = true, starts_token_ = true;
  int flow_ = 0, indent_ = 0;
};

}  // namespace

bool check_bytes(const std::string& bytes, Faults& faults) {
  if (bytes.size() > kMaxFileBytes) {
    faults.add("Y01", {}, "(file)", "is larger than 1 MiB", "a scenario is small; documents belong at data.path");
    return false;
  }
  FilePlace place{1, 1};
  NestingScan nesting;
  for (std::size_t at = 0; at < bytes.size();) {
    const int length = utf8_length(bytes, at);
    const auto byte = static_cast<unsigned char>(bytes[at]);
    if (length == 0) {
      faults.add("Y01", place, "(file)", "is not UTF-8: byte " + hex(byte),
                 "text has one meaning only in one encoding");
      return false;
    }
    if (is_control(bytes, at)) {
      faults.add("Y01", place, "(file)", "has the control byte " + hex(byte),
                 "it cannot be seen; only tabs and line ends are legal");
      return false;
    }
    if (nesting.too_deep(bytes[at])) {
      faults.add("Y01", place, "(file)", "is nested deeper than 32 levels", "no key goes that deep");
      return false;
    }
    place = byte == '\n' ? FilePlace{place.line + 1, 1} : FilePlace{place.line, place.column + 1};
    at += static_cast<std::size_t>(length);
  }
  return true;
}

}  // namespace lockstep
