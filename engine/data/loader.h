// Copies the documents of a step to the device on its own stream, and keeps the order between the
// host's writes to staging memory, the copies, and the kernels that read the result.
#pragma once

#include <memory>
#include <vector>

#include "engine/data/packed_batch.h"
#include "kernels/core/at.h"
#include "kernels/core/step_state.h"

namespace lockstep {

// One microbatch on the device, at the same addresses in every step.
struct MicrobatchInputs {
  Tensor<std::int32_t> tokens, targets;   // [1, T]
  Tensor<std::int32_t> lengths, numbers;  // [1, largest bucket]
  Tensor<std::int32_t> count;             // [1, 1]
};

class Loader {
 public:
  // `capacity`: the largest bucket. `microbatches`: the most that are loaded at once.
  // `poisons_staging`: staging memory is overwritten with poison before each use.
  Loader(Device& device, const PackShape& shape, std::int64_t capacity, int microbatches,
         bool poisons_staging = false);
  ~Loader();  // Waits for unfinished copies: a step may have been abandoned before it read them.

  // Copies a microbatch once the kernels that read the previous one in its place are done. One that
  // fits no bucket has its documents in an `overflow` table, which grows as needed (`compute` is
  // drained before the old table is freed).
  void load(int microbatch, const HostPackedBatch& pack, bool overflow, const Stream& compute);
  void load_state(const StepState& state, bool training);

  // Kernels after this call see the copies.
  void wait_for(int microbatch, const Stream& compute) const;
  void wait_for_state(const Stream& compute) const;
  // Kernels before this call are the last that read it.
  void consumed(int microbatch, const Stream& compute) const;
  void state_consumed(const Stream& compute) const;

  const MicrobatchInputs& inputs(int microbatch) const { return entry(microbatch).inputs; }
  DocumentTable table(int microbatch, bool overflow) const;
  Tensor<StepState> state(bool training) const {
    return training ? training_state_ : evaluation_state_;
  }
  std::int64_t bytes_poisoned() const { return bytes_poisoned_; }
  std::int64_t overflow_capacity(int microbatch) const {
    return entry(microbatch).overflow.lengths.cols;
  }
  void append_addresses(std::vector<const void*>& table) const { pool_.append_addresses(table); }

 private:
  struct Entry {
    MicrobatchInputs inputs;
    DocumentTable overflow;
    std::unique_ptr<DeviceBuffer> overflow_memory;
    std::unique_ptr<PinnedBuffer> staging, overflow_staging;
    std::unique_ptr<Event> loaded, consumed;
  };
  void begin_staging(const PinnedBuffer& staging);  // Declares that the host is about to write it.
  void stage(const Entry& entry, const HostPackedBatch& pack);
  void load_overflow(const Entry& entry, const HostPackedBatch& pack);
  Entry& entry(int microbatch) { return *at(entries_, microbatch); }
  const Entry& entry(int microbatch) const { return *at(entries_, microbatch); }
  void grow_overflow(Entry& entry, std::int64_t slots, const Stream& compute);

  Device& device_;
  PackShape shape_;
  std::int64_t capacity_;
  bool poisons_staging_;
  std::int64_t bytes_poisoned_ = 0;
  Stream stream_;
  TensorPool pool_;
  std::vector<std::unique_ptr<Entry>> entries_;
  Tensor<StepState> training_state_, evaluation_state_;
  PinnedBuffer state_staging_;
  Event state_loaded_, state_consumed_;
};

}  // namespace lockstep
