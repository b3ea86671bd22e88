// Tensors in a safetensors file (github.com/huggingface/safetensors: 8-byte header length, JSON
// header, raw data). Written whole or not at all (engine/checkpoint/whole_file.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

struct Checkpoint {
  std::map<std::string, std::string> metadata;
  std::vector<StoredTensor> tensors;
};

// Both throw std::runtime_error with the path and the system's reason; a torn or altered file is
// refused by its header, its length or its checksum ("crc32" in the metadata, of metadata and
// data).
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
Checkpoint read_checkpoint(const std::string& path);

}  // namespace lockstep
