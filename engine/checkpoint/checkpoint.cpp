#include "engine/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "engine/checkpoint/whole_file.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw CheckpointRefused(shown(path) + ": " + shown(what));
}
[[noreturn]] void fail_with_errno(const std::string& path, const char* call) {
  throw std::runtime_error(shown(path) + ": " + call + ": " + shown(std::strerror(errno)));
}

uLong continued(uLong crc, std::string_view data) {
  for (std::size_t at = 0; at < data.size(); at += 1u << 30) {
    const std::size_t part = std::min<std::size_t>(1u << 30, data.size() - at);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(data.data() + at), static_cast<uInt>(part));
  }
  return crc;
}

// The checksum covers metadata and data, so that neither can change alone.
uLong checksum_of(const std::map<std::string, std::string>& metadata) {
  uLong crc = crc32(0, nullptr, 0);
  for (const auto& [key, value] : metadata) {
    if (key != "crc32") crc = continued(crc, key + "=" + value + "\n");
  }
  return crc;
}

std::string data_of(const Checkpoint& checkpoint) {
  std::string data;
  for (const StoredTensor& t : checkpoint.tensors) {
    data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
  }
  return data;
}

std::string header_of(const Checkpoint& checkpoint, const std::string& data) {
  json::object header;
  json::object metadata;
  for (const auto& [key, value] : checkpoint.metadata) metadata[key] = value;
  metadata["crc32"] = std::to_string(continued(checksum_of(checkpoint.metadata), data));
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

// The format's own limit. What a header names is bounded by its length, so this bounds it all.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
constexpr std::size_t kMostDimensions = 8;

StoredEntry entry_of(const std::string& path, const std::string& name, const json::object& entry) {
  if (entry.at("dtype").as_string() != "F32") fail(path, "tensor " + name + " is not F32");
  const json::array& shape = entry.at("shape").as_array();
  const json::array& offsets = entry.at("data_offsets").as_array();
  const std::string bad = "not a checkpoint: tensor " + name;
  if (shape.size() > kMostDimensions) fail(path, bad + " has more than 8 dimensions");
  if (offsets.size() != 2) fail(path, bad + " does not begin and end once");
  StoredEntry made{name, json::value_to<std::vector<std::int64_t>>(entry.at("shape")), 0, 1};
  for (const std::int64_t size : made.shape) {
    if (size < 0 ||
        __builtin_mul_overflow(made.count, static_cast<std::uint64_t>(size), &made.count))
      fail(path, bad + " has a size that no tensor has");
  }
  const auto begin = json::value_to<std::uint64_t>(offsets[0]);
  const auto end = json::value_to<std::uint64_t>(offsets[1]);
  if (begin > end || begin % sizeof(float) != 0 || (end - begin) % sizeof(float) != 0 ||
      (end - begin) / sizeof(float) != made.count)
    fail(path, "torn checkpoint: tensor " + name + " has not the bytes of its shape");
  made.first = begin / sizeof(float);
  return made;
}

// Safetensors forbids overlaps and holes: bytes that no tensor names would travel unseen.
void require_tiled(const std::string& path, const std::vector<StoredEntry>& sorted,
                   std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const StoredEntry& entry : sorted) {
    if (entry.first != covered)
      fail(path, "not a checkpoint: there is " +
                     std::string(entry.first < covered ? "an overlap" : "a hole") +
                     " before tensor " + entry.name);
    covered += entry.count;
  }
  if (data_bytes % sizeof(float) != 0 || covered != data_bytes / sizeof(float))
    fail(path, "torn checkpoint: its tensors do not end where the file does");
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

CheckpointFile::CheckpointFile(const std::string& path) : path_(path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) fail_with_errno(path, "open");
  if (S_ISLNK(status.st_mode)) fail(path, "is a symbolic link: name the file that it leads to");
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  // It may have been replaced meanwhile: without O_NONBLOCK a pipe would hold us here.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_ < 0) fail_with_errno(path, "open");
  try {
    if (::fstat(descriptor_, &status) != 0) fail_with_errno(path, "stat");
    if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size < 8) fail(path, "not a checkpoint: shorter than its header's length");
    std::array<unsigned char, 8> words{};
    read_at(0, words.data(), words.size());
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | at(words, i);
    if (length > size - 8) fail(path, "torn checkpoint: the header ends after the file");
    if (length > kMostHeaderBytes) fail(path, "not a checkpoint: its header exceeds 100 MB");
    std::string header(length, '\0');
    read_at(8, header.data(), header.size());
    data_begin_ = 8 + length;
    parse(header, size - data_begin_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

CheckpointFile::~CheckpointFile() { ::close(faulty("checkpoint-stays-open", descriptor_, -1)); }

void CheckpointFile::parse(const std::string& header, std::uint64_t data_bytes) {
  try {
    const json::value all = json::parse(header);
    for (const auto& [name, value] : all.as_object()) {
      if (name != "__metadata__") {
        entries_.push_back(entry_of(path_, std::string(name), value.as_object()));
        continue;
      }
      for (const auto& [key, text] : value.as_object())
        metadata_[key] = std::string(text.as_string());
    }
  } catch (const boost::system::system_error& error) {
    fail(path_, "not a checkpoint: " + error.code().message());
  } catch (const std::invalid_argument& error) {
    fail(path_, std::string("not a checkpoint: ") + error.what());
  } catch (const std::out_of_range& error) {
    fail(path_, std::string("not a checkpoint: ") + error.what());
  }
  // An empty tensor lies before the one that begins where it does.
  std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.count) < std::tie(b.first, b.count);
  });
  require_tiled(path_, entries_, data_bytes);
}

void CheckpointFile::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno(path_, "read");
    if (got == 0) fail(path_, "torn checkpoint: it became shorter while it was read");
    next += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

void CheckpointFile::read(const Take& take) const {
  constexpr std::uint64_t kMostAtOnce = 1 << 18;
  std::vector<float> piece(kMostAtOnce);
  uLong crc = checksum_of(metadata_);
  for (const StoredEntry& entry : entries_) {
    for (std::uint64_t first = 0; first < entry.count; first += kMostAtOnce) {
      const std::size_t count = std::min(kMostAtOnce, entry.count - first);
      read_at(data_begin_ + (entry.first + first) * sizeof(float), piece.data(),
              count * sizeof(float));
      crc = continued(crc, {reinterpret_cast<const char*>(piece.data()), count * sizeof(float)});
      take(entry, static_cast<std::int64_t>(first), std::span(piece.data(), count));
    }
  }
  const auto stored = metadata_.find("crc32");
  if (stored == metadata_.end() || stored->second != std::to_string(crc))
    fail(path_, "damaged checkpoint: its checksum does not match");
}

Checkpoint read_checkpoint(const std::string& path) {
  const CheckpointFile file(path);
  Checkpoint checkpoint{file.metadata(), {}};
  for (const StoredEntry& entry : file.entries())
    checkpoint.tensors.push_back({entry.name, entry.shape, {}});
  file.read([&](const StoredEntry& entry, std::int64_t, std::span<const float> values) {
    std::vector<float>& to = checkpoint.tensors[&entry - file.entries().data()].values;
    to.insert(to.end(), values.begin(), values.end());
  });
  return checkpoint;
}

}  // namespace lockstep
