// The row sums of all gradients in the order of the global norm: this rank's, or those that the ranks have each for the
// rows of its shards. First each sums up its own, in any order: as gradients are complete; then they are exchanged, and
// put in order by one kernel: a copy for each run of rows would be dozens, while nothing else runs.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parameters/parameters.h"
#include "engine/parameters/shard_layout.h"

namespace lockstep {

class NormSequence {
 public:
  // `layout` and `communicator` are null where every rank has every row. What is written is written on `stream`.
  NormSequence(const Stream& stream, TensorPool& pool, const Parameters& parameters, const ShardLayout* layout,
               Communicator* communicator);

  // Of the parameters [first, end), by index.
  void sum_own_rows(const Stream& stream, int first, int end) const;
  void exchange(const Stream& stream) const;
  // [1, rows of all parameters in index order]
  Tensor<float> sums(const Stream& stream) const;

 private:
  std::vector<std::int32_t> plan_order(const ShardLayout& layout);

  const Parameters& parameters_;
  Communicator* communicator_;
  std::int64_t most_ = 0;  // Rows of the rank that has most.
  Tensor<float> sums_, own_, received_;
  std::vector<std::int32_t> plan_;  // Where each row of the sequence is in what was received; stays while it is copied.
  Tensor<std::int32_t> order_;      // The same on the device.
};

}  // namespace lockstep
