// Small valid instances of every op, for properties that hold for all of them: on the host alone,
// or host against CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/submission/submission.h"

namespace lockstep {

// Where the operands of a generated op live. The generator fills host bytes and asks for a block
// that holds a copy of them, one block an operand, always in the same order: block k of two
// memories belongs to the same operand.
class OpMemory {
 public:
  virtual ~OpMemory() = default;
  virtual void* place(const std::vector<std::byte>& bytes) = 0;
};

// Host memory with guard bytes around every block.
class HostOpMemory : public OpMemory {
 public:
  static constexpr std::size_t kGuard = 64;

  void* place(const std::vector<std::byte>& bytes) override;
  std::size_t size() const { return blocks_.size(); }
  // Whole blocks, guards included.
  const std::vector<std::byte>& block(std::size_t k) const { return *blocks_[k]; }
  std::byte* block_data(std::size_t k) { return blocks_[k]->data(); }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> blocks_;
};

// The values that fill the bytes that an op may not read.
struct Fill {
  std::uint8_t undefined = 0xff;  // Out, Scratch and the gaps between rows.
  float padding =
      std::numeric_limits<float>::quiet_NaN();  // Rows of no document in operands that are read.
};

struct OpCase {
  std::string name;  // The op's name and its seed: enough to see it again.
  Submission submission;
  bool (*gives_numbers)(const void* op);  // Every element of its outputs is finite.
};

// The name of an op in AllOps, with its numerics or its type of codes.
std::string op_name(int id);

// The op with this place in AllOps. The same (id, seed) gives the same shapes and contents in any
// memory, up to Fill.
OpCase any_op(int id, std::uint64_t seed, OpMemory& memory, Fill fill = {});

}  // namespace lockstep
