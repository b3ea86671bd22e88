// A scenario in one word that can be pasted: `ls` + base64url of version, CRC-32C, length and the
// deflated canonical form.
#include <zlib.h>

#include <boost/crc.hpp>
#include <cstring>
#include <stdexcept>
#include <string_view>

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

// The text that most scenarios share; deflate refers to it instead of storing it. It is the
// canonical form of the defaults as it was when tokens of this version were first printed. It stays
// as it is when a key is added, since every token that was ever printed refers to it.
constexpr std::string_view kDictionary =
    R"({"schema":1,"name":"x","description":"","numerics":["fp32"],"model":{"pattern":"M*-",)"
    R"("hidden":32,"vocab":64,"tied_embedding":false,"norm_eps":1e-05,"attention":{"heads":2,)"
    R"("kv_heads":1,"head_dim":16,"rope_base":10000},"mamba":{"d_inner":64,"head_dim":16,)"
    R"("groups":1,"state":16,"conv_width":4,"chunk":16},"mlp":{"hidden":64,)"
    R"("activation":"squared_relu"},"moe":{"experts":4,"top_k":2,"hidden":32,"shared_hidden":0,)"
    R"("router":"softmax","expert_bias":false,"capacity_factor":2,"pad_to_capacity":true,)"
    R"("host_sync":false,"aux_loss":0,"z_loss":0},"dropout":0,"recompute":[],)"
    R"("core_attention":"native"},"data":{"kind":"lengths","pack_length":64,"documents":[[[17,)"
    R"(1,0,30],[5,16,33]],[[64],[3,4,20,15,9]]],"long_documents":"error",)"
    R"("mask":{"document_end":true,"prefix":0,"rate":0,"microbatches":[]},"tail":"extend_last",)"
    R"("align":1,"gaps":0},"training":{"steps":3,"microbatches":2,"in_flight":2,)"
    R"("optimizer":{"lr":0.001,"min_lr":0,"schedule":"constant","lr_warmup":0,"decay_steps":3,)"
    R"("weight_decay":0.01,"betas":[0.9,0.95],"eps":1e-08,"clip":1},"seed":1,"eval_every":0,)"
    R"("recapture_at":[],"change_microbatches_at":[]},"cuda_graph":{"impl":"partial",)"
    R"("modules":[],"warmup_steps":1,"max_packed_seqs":8,"graph_memory_limit":0},)"
    R"("offload":{"modules":[],"fraction":1,"min_bytes":0,"max_inflight":"unlimited",)"
    R"("delay_until_cuda_graph":false,"pool_slack":0},"fsdp":{"strategy":"no_shard",)"
    R"("double_buffer":true,"persist_buf_on_alloc_fail":true,"unit":1,"prefetch":1,)"
    R"("reduction":"ordered","bucket_bytes":0,"nccl_ub":false},"parallel":{"data":1,)"
    R"("context":1,"tensor":1,"expert":1,"pipeline":1,"transport":"auto"},)"
    R"("checker":{"hazards":true,"poison":["fresh","freed"],"delays":[],)"
    R"("schedule":{"kind":"random","depth":1,"seed":1,"count":1}},"expect":{"verdict":"holds",)"
    R"("error":"none","judge":"none","counters":{}}})";

Bytef* as_bytes(std::string& text) { return reinterpret_cast<Bytef*>(text.data()); }

constexpr int kRawDeflate = -15;

std::string deflated(std::string text) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, kRawDeflate, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  std::string shared(kDictionary);
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

// Inflates to the end of the last block. False where the bits behind it, which nothing reads, are
// not the zeros that deflate puts there: then one scenario would have many tokens.
bool inflate_to_the_last_bit(z_stream& stream) {
  constexpr int kUnusedBits = 63, kEndOfTheLastBlock = 64 + 128;
  int result = Z_OK;
  while (result == Z_OK) {
    result = inflate(&stream, Z_BLOCK);
    if (result != Z_OK || (stream.data_type & kEndOfTheLastBlock) != kEndOfTheLastBlock) continue;
    const int unused = stream.data_type & kUnusedBits;
    return (stream.next_in[-1] >> (8 - unused)) == 0 && inflate(&stream, Z_FINISH) == Z_STREAM_END;
  }
  return false;
}

std::string inflated(std::string packed, std::size_t length) {
  z_stream stream{};
  if (inflateInit2(&stream, kRawDeflate) != Z_OK) throw std::bad_alloc();
  std::string shared(kDictionary);
  inflateSetDictionary(&stream, as_bytes(shared), static_cast<uInt>(shared.size()));
  std::string out(length + 1, '\0');  // One more than announced, so that a longer text shows.
  stream.next_in = as_bytes(packed);
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = as_bytes(out);
  stream.avail_out = static_cast<uInt>(out.size());
  const bool is_whole =
      inflate_to_the_last_bit(stream) && stream.total_out == length && stream.avail_in == 0;
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
  if (stage.scenario.data.digest.empty()) stage.scenario.data.digest = stage.data_digest;
  return stage.scenario;
}

}  // namespace lockstep
