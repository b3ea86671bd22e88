// Tensors in a safetensors file (github.com/huggingface/safetensors: 8-byte header length, JSON
// header, raw data). Written whole or not at all (engine/checkpoint/whole_file.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

// The system gave what it was asked for, but it is no checkpoint, or none that this run can go on
// from.
struct CheckpointRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

struct Checkpoint {
  std::map<std::string, std::string> metadata;
  std::vector<StoredTensor> tensors;
};

// A tensor of a file, before its values are read.
struct StoredEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t first = 0, count = 0;  // Its values, among all values of the file.
};

// An open file of which the header alone was read. So the caller can refuse it by its metadata and
// its shapes, and nothing is allocated for values that nobody wants. Only a regular file is opened:
// a pipe would block, a device has no end, and a link may lead anywhere.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path);
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;
  ~CheckpointFile();

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In the order of their values, which they cover without overlap or hole.
  const std::vector<StoredEntry>& entries() const { return entries_; }

  // Passes all values on in pieces that begin at value `first` of their entry, and then judges the
  // checksum: what was passed on is only good if this returns.
  using Take = std::function<void(const StoredEntry& entry, std::int64_t first,
                                  std::span<const float> values)>;
  void read(const Take& take) const;

 private:
  void parse(const std::string& header, std::uint64_t data_bytes);
  void read_at(std::uint64_t offset, void* to, std::size_t bytes) const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t data_begin_ = 0;  // In bytes.
  std::map<std::string, std::string> metadata_;
  std::vector<StoredEntry> entries_;
};

// Both throw std::runtime_error with the path and the system's reason; a torn or altered file is
// refused (CheckpointRefused) by its header, its length or its checksum ("crc32" in the metadata,
// of metadata and data).
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
Checkpoint read_checkpoint(const std::string& path);

}  // namespace lockstep
