#include "engine/checkpoint/checkpoint.h"

#include <zlib.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "engine/checkpoint/whole_file.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

namespace json = boost::json;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}
[[noreturn]] void fail_with_errno(const std::string& path, const char* call) {
  fail(path, std::string(call) + ": " + std::strerror(errno));
}

std::string checksum(const std::string& data) {
  uLong crc = crc32(0, nullptr, 0);
  for (std::size_t at = 0; at < data.size(); at += 1u << 30) {
    const std::size_t part = std::min<std::size_t>(1u << 30, data.size() - at);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(data.data() + at), static_cast<uInt>(part));
  }
  return std::to_string(crc);
}

std::string data_of(const Checkpoint& checkpoint) {
  std::string data;
  for (const StoredTensor& t : checkpoint.tensors) {
    data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
  }
  return data;
}

// Covers metadata and data, so that neither can change alone.
std::string checksum_of(const std::map<std::string, std::string>& metadata,
                        const std::string& data) {
  std::string all;
  for (const auto& [key, value] : metadata) {
    if (key != "crc32") all += key + "=" + value + "\n";
  }
  return checksum(all + data);
}

std::string header_of(const Checkpoint& checkpoint, const std::string& data) {
  json::object header;
  json::object metadata;
  for (const auto& [key, value] : checkpoint.metadata) metadata[key] = value;
  metadata["crc32"] = checksum_of(checkpoint.metadata, data);
  header["__metadata__"] = std::move(metadata);
  std::size_t offset = 0;
  for (const StoredTensor& t : checkpoint.tensors) {
    const std::size_t end = offset + t.values.size() * sizeof(float);
    header[t.name] = {
        {"dtype", "F32"}, {"shape", json::value_from(t.shape)}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');  // The data starts at a multiple of 8.
  return text;
}

}  // namespace

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  const std::string data = data_of(checkpoint);
  const std::string header = header_of(checkpoint, data);
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) at(length, i) = static_cast<char>(header.size() >> (8 * i));

  // A device or a folder cannot be replaced by a rename, and must not be.
  const std::filesystem::file_status there = std::filesystem::status(path);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    fail(path, "is not a regular file");
  write_whole_file(path, {length, header, data});
}

Checkpoint read_checkpoint(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_with_errno(path, "open");
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (all.size() < 8) fail(path, "not a checkpoint: shorter than its header's length");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(at(all, i));
  if (length > all.size() - 8) fail(path, "torn checkpoint: the header ends after the file");

  Checkpoint checkpoint;
  try {
    const json::object header = json::parse(all.substr(8, length)).as_object();
    const std::string data = all.substr(8 + length);
    for (const auto& [name, value] : header) {
      if (name == "__metadata__") {
        for (const auto& [key, text] : value.as_object())
          checkpoint.metadata[key] = text.as_string().c_str();
        continue;
      }
      const json::object& entry = value.as_object();
      if (entry.at("dtype").as_string() != "F32")
        fail(path, "tensor " + std::string(name) + " is not F32");
      StoredTensor t{
          std::string(name), json::value_to<std::vector<std::int64_t>>(entry.at("shape")), {}};
      const auto offsets = json::value_to<std::vector<std::uint64_t>>(entry.at("data_offsets"));
      std::uint64_t count = 1;
      for (const std::int64_t size : t.shape) count *= static_cast<std::uint64_t>(size);
      if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size() ||
          offsets[1] - offsets[0] != count * sizeof(float)) {
        fail(path, "torn checkpoint: tensor " + t.name + " ends after the file");
      }
      t.values.resize(count);
      std::memcpy(t.values.data(), data.data() + offsets[0], count * sizeof(float));
      checkpoint.tensors.push_back(std::move(t));
    }
    if (checkpoint.metadata["crc32"] != checksum_of(checkpoint.metadata, data))
      fail(path, "damaged checkpoint: its checksum does not match");
  } catch (const boost::system::system_error& error) {
    fail(path, std::string("not a checkpoint: ") + error.what());
  } catch (const std::invalid_argument& error) {
    fail(path, std::string("not a checkpoint: ") + error.what());
  } catch (const std::out_of_range& error) {
    fail(path, std::string("not a checkpoint: ") + error.what());
  }
  return checkpoint;
}

}  // namespace lockstep
