// Rule Y01 on the bytes of a file: size, encoding, control bytes, nesting. The parser sees only
// what passes.
#include <string>
#include <string_view>

#include "scenarios/syntax/node.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// Deeper than any legal file, shallower than what a recursive parser can bear.
constexpr int kParserDepth = 400;

bool is_control(const std::string& bytes, std::size_t at) {
  const auto byte = static_cast<unsigned char>(bytes[at]);
  if (byte == '\r') return at + 1 >= bytes.size() || bytes[at + 1] != '\n';
  return (byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7F;
}

std::string hex(unsigned char byte) {
  const char* digits = "0123456789abcdef";
  return std::string("0x") + digits[byte >> 4] + digits[byte & 15];
}

// Walks the lines with as much of YAML's grammar as telling brackets from text takes: quotes and
// comments.
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
    starts_token_ =
        byte == ' ' || byte == '\t' || byte == '[' || byte == '{' || byte == ',' || byte == ':';
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
    faults.add("Y01", {}, "(file)", "is larger than 1 MiB",
               "a scenario is small; documents belong at data.path");
    return false;
  }
  FilePlace place{1, 1};
  NestingScan nesting;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = utf8_length(std::string_view(bytes).substr(at));
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
      faults.add("Y01", place, "(file)", "is nested deeper than 32 levels",
                 "no key goes that deep");
      return false;
    }
    place = byte == '\n' ? FilePlace{place.line + 1, 1} : FilePlace{place.line, place.column + 1};
    at += length;
  }
  return true;
}

}  // namespace lockstep
