// One op on the host and on a GPU, from equal memories to equal bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/backend.h"
#include "tests/kernels/any_op/any_op.h"

namespace lockstep {

inline Backend& gpu() {
  static const std::unique_ptr<Backend> opened = open_cuda();
  return *opened;
}

class GpuStream {
 public:
  GpuStream() : handle_(gpu().create_stream("test")) {}
  ~GpuStream() { gpu().destroy_stream(handle_); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  BackendStream* get() const { return handle_; }

 private:
  BackendStream* handle_;
};

// Device memory with guard bytes around every block, as HostOpMemory has them.
class GpuOpMemory : public OpMemory {
 public:
  explicit GpuOpMemory(const GpuStream& stream) : stream_(stream) {}
  ~GpuOpMemory() override {
    for (const Block& block : blocks_) gpu().release(block.data);
  }
  GpuOpMemory(const GpuOpMemory&) = delete;
  GpuOpMemory& operator=(const GpuOpMemory&) = delete;

  void* place(const std::vector<std::byte>& bytes) override {
    HostOpMemory guarded;
    guarded.place(bytes);
    const std::vector<std::byte>& block = guarded.block(0);
    auto* const data = static_cast<std::byte*>(gpu().allocate(block.size()));
    blocks_.push_back({data, block.size()});
    gpu().copy(stream_.get(), data, block.data(), block.size(), CopyKind::host_to_device);
    gpu().synchronize(stream_.get());
    return data + HostOpMemory::kGuard;
  }
  std::size_t size() const { return blocks_.size(); }
  std::vector<std::byte> block(std::size_t k) const {
    std::vector<std::byte> bytes(blocks_[k].size);
    gpu().copy(stream_.get(), bytes.data(), blocks_[k].data, bytes.size(),
               CopyKind::device_to_host);
    gpu().synchronize(stream_.get());
    return bytes;
  }

 private:
  struct Block {
    std::byte* data;
    std::size_t size;
  };
  const GpuStream& stream_;
  std::vector<Block> blocks_;
};

// Blanks what is undefined after the op: block `k` of the host's memory and its equal on the GPU.
inline void blank_scratch(const Submission& on_host, HostOpMemory& memory, std::size_t k,
                          std::vector<std::byte>& host, std::vector<std::byte>& device) {
  for (const OperandBytes& operand : on_host.operands()) {
    const std::ptrdiff_t first = static_cast<std::byte*>(operand.base) - memory.block_data(k);
    const bool here = first >= 0 && first < static_cast<std::ptrdiff_t>(host.size());
    for (std::int64_t i = 0; operand.access == Access::scratch && here && i < operand.rows; ++i) {
      const std::ptrdiff_t row = first + i * operand.pitch_bytes;
      std::memset(host.data() + row, 0, static_cast<std::size_t>(operand.row_bytes));
      std::memset(device.data() + row, 0, static_cast<std::size_t>(operand.row_bytes));
    }
  }
}

inline std::size_t first_difference(const std::vector<std::byte>& a,
                                    const std::vector<std::byte>& b) {
  std::size_t e = 0;
  while (e < a.size() && a[e] == b[e]) ++e;
  return e;
}

using Run = void (*)(BackendStream*, const Submission&);

inline void at_once(BackendStream* stream, const Submission& submission) {
  gpu().submit(stream, submission);
  gpu().synchronize(stream);
}

inline void from_a_graph(BackendStream* stream, const Submission& submission) {
  gpu().begin_capture(stream);
  gpu().submit(stream, submission);
  BackendGraph* const graph = gpu().end_capture(stream);
  gpu().launch(graph, stream);
  gpu().synchronize(stream);
  gpu().destroy_graph(graph);
}

// Outputs and scratch start as NaN on both sides; inputs, gaps between rows and guards must come
// back as they were. make(memory): the same submission in any memory.
template <class Make>
void expect_same_bytes(const std::string& name, Run run, const Make& make) {
  const GpuStream stream;
  HostOpMemory on_host;
  GpuOpMemory on_gpu(stream);
  const Submission host = make(on_host);
  const Submission device = make(on_gpu);
  host.run_on_host();
  run(stream.get(), device);
  ASSERT_EQ(on_host.size(), on_gpu.size());
  for (std::size_t k = 0; k < on_host.size(); ++k) {
    std::vector<std::byte> want = on_host.block(k);
    std::vector<std::byte> got = on_gpu.block(k);
    ASSERT_EQ(want.size(), got.size());
    blank_scratch(host, on_host, k, want, got);
    ASSERT_TRUE(want == got) << name << ", operand block " << k << ", byte "
                             << first_difference(want, got) - HostOpMemory::kGuard;
  }
}

}  // namespace lockstep
