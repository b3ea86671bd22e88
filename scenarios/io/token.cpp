// A scenario in one word that can be pasted: `ls` + base64url of version, CRC-32C, length and the
// deflated canonical form.
#include <zlib.h>

#include <boost/crc.hpp>
#include <cstring>
#include <stdexcept>

#include "scenarios/documents/layout.h"
#include "scenarios/documents/raw_documents.h"
#include "scenarios/io/reader.h"
#include "scenarios/io/stage.h"

namespace lockstep {
namespace {

constexpr char kVersion = 1;
constexpr std::size_t kHeaderBytes = 9;
constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

[[noreturn]] void refuse(const std::string& what) {
  throw TokenError("token: " + what +
                   "; copy the whole token again, or use the scenario's YAML file");
}

std::string to_base64(const std::string& bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (count += 8; count >= 6; count -= 6) text += kDigits[bits >> (count - 6) & 63];
  }
  if (count > 0) text += kDigits[bits << (6 - count) & 63];
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const char* digit = c == '\0' ? nullptr : std::strchr(kDigits, c);
    if (digit == nullptr) refuse("a character in it belongs to no token");
    bits = bits << 6 | static_cast<std::uint32_t>(digit - kDigits);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  if (count == 6 || (bits & ((1u << count) - 1)) != 0) refuse("its end is damaged");
  return bytes;
}

std::uint32_t crc32c(const std::string& bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  return sum.checksum();
}

std::string little_endian(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
  return bytes;
}

std::uint32_t little_endian_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// The text that most scenarios share; deflate refers to it instead of storing it.
std::string dictionary() {
  Scenario plain;
  plain.name.push_back('x');
  return canonical_form(plain);
}

Bytef* as_bytes(std::string& text) { return reinterpret_cast<Bytef*>(text.data()); }

constexpr int kRawDeflate = -15;

std::string deflated(std::string text) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, kRawDeflate, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  std::string shared = dictionary();
  deflateSetDictionary(&stream, as_bytes(shared), static_cast<uInt>(shared.size()));
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = as_bytes(text);
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = as_bytes(out);
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("token: deflate did not end");
  return out;
}

std::string inflated(std::string packed, std::size_t length) {
  z_stream stream{};
  if (inflateInit2(&stream, kRawDeflate) != Z_OK) throw std::bad_alloc();
  std::string shared = dictionary();
  inflateSetDictionary(&stream, as_bytes(shared), static_cast<uInt>(shared.size()));
  std::string out(length + 1, '\0');  // One more than announced, so that a longer text shows.
  stream.next_in = as_bytes(packed);
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = as_bytes(out);
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool is_whole =
      result == Z_STREAM_END && stream.total_out == length && stream.avail_in == 0;
  inflateEnd(&stream);
  if (!is_whole) refuse("its length is not the one it announces");
  out.resize(length);
  return out;
}

std::string canonical_form_of(const std::string& token) {
  if (token.compare(0, 2, "ls") != 0) refuse("a token begins with `ls`");
  const std::string bytes = from_base64(std::string_view(token).substr(2));
  if (bytes.empty()) refuse("it is cut off");
  if (bytes[0] != kVersion) {
    refuse("it is of version " + std::to_string(static_cast<unsigned char>(bytes[0])) +
           ", this program reads version 1 (use the program that printed it)");
  }
  if (bytes.size() < kHeaderBytes) refuse("it is cut off");
  const std::size_t length = little_endian_at(bytes, 5);
  if (length > kMaxFileBytes) refuse("it announces more than 1 MiB");
  const std::string form = inflated(bytes.substr(kHeaderBytes), length);
  if (crc32c(form) != little_endian_at(bytes, 1)) refuse("its checksum is wrong");
  return form;
}

}  // namespace

std::string make_token(const Scenario& scenario) {
  if (scenario.numerics.size() != 1)
    throw std::invalid_argument("a token is of one run: exactly one precision");
  Scenario run = scenario;
  if (reads_bytes(run.data) && run.data.digest.empty()) run.data.digest = data_digest(run);
  const std::string form = canonical_form(run);
  if (form.size() > kMaxFileBytes)
    throw TokenError("token: the scenario is larger than 1 MiB; use its YAML file");
  return "ls" + to_base64(kVersion + little_endian(crc32c(form)) +
                          little_endian(static_cast<std::uint32_t>(form.size())) + deflated(form));
}

Scenario read_token(const std::string& token, const std::string& folder) {
  ReadStage stage =
      read_stage(canonical_form_of(token), folder.empty() ? "token" : folder + "/token");
  if (!stage.errors.empty()) throw TokenError(text_of(stage.errors));
  if (stage.scenario.numerics.size() != 1) refuse("it names more than one precision");
  return stage.scenario;
}

}  // namespace lockstep
