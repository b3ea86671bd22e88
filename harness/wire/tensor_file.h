// Typed tensors in safetensors files, and their digests (docs/engine-protocol.md, section 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::wire {

// What the other side wrote is not what the protocol says.
struct WireError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Row-major, little-endian.
struct TypedTensor {
  std::string dtype;  // "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

// By name. Throws WireError for a file that cannot be opened or is not as section 3 says.
std::map<std::string, TypedTensor> read_tensor_file(const std::string& path);
// Throws WireError if the file exists or cannot be written.
void write_tensor_file(const std::string& path,
                       const std::vector<std::pair<std::string, TypedTensor>>& tensors);

// The elements as T, which must have the dtype's size.
template <class T>
std::vector<T> values_of(const TypedTensor& tensor);

// Floats as the device stores them: F32, or BF16 where they are widened bf16 values.
std::vector<std::byte> stored_bytes(std::span<const float> values, bool narrow);
// SHA-256 in hexadecimal; a floating-point -0 is taken as +0.
std::string digest(const std::string& dtype, std::span<const std::byte> bytes);

}  // namespace lockstep::wire
