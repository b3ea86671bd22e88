// A capture with passes (cuda_graph.capture_passes): its inputs, and a copy of everything that they
// would change in the run.
#pragma once

#include <vector>

#include "engine/data/packed_batch.h"
#include "engine/device/counters.h"
#include "engine/tensors/memory_range.h"
#include "engine/tensors/ones.h"

namespace lockstep {

class CapturePasses {
 public:
  // Every pass reads one document, as long as captured launches are made for and fits, from a table
  // of `capacity` places; regions are filled with at most `ones` elements; at most `kept` bytes are
  // kept aside.
  CapturePasses(Device& device, const Stream& compute, const PackShape& shape,
                std::int64_t capacity, std::int64_t ones, std::int64_t kept);

  const DocumentTable& table() const { return table_; }
  const Ones& ones() const { return ones_; }

  // Copies the memory, and copies it back. Counters of the device for this rank go with it.
  void keep(const std::vector<MemoryRange>& memory);
  void put_back();

 private:
  DocumentTable make_table(const PackShape& shape, std::int64_t capacity);

  const Stream& compute_;
  TensorPool pool_;
  PinnedBuffer table_staging_;
  DocumentTable table_;
  Ones ones_;
  Tensor<std::uint8_t> kept_;
  std::vector<MemoryRange> memory_;
  RankCounters counted_;
};

}  // namespace lockstep
