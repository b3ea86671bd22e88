// The row sums of all gradients in the order of the global norm: this rank's, or those that the ranks have each for the
// rows of its shards. First each sums up its own, in any order: as gradients are complete; then they are exchanged.
#pragma once

#include <vector>

#include "engine/communicator.h"
#include "engine/fsdp/layout.h"
#include "engine/parameters.h"

namespace lockstep {

class NormSequence {
 public:
  // `layout` and `communicator` are null where every rank has every row.
  NormSequence(TensorPool& pool, const Parameters& parameters, const ShardLayout* layout, Communicator* communicator);

  // Of the parameters [first, end), by index.
  void sum_own_rows(const Stream& stream, int first, int end) const;
  void exchange(const Stream& stream) const;
  // [1, rows of all parameters in index order]
  Tensor<float> sums(const Stream& stream) const;

 private:
  struct Run {
    std::int64_t from, to, count;  // In what the ranks sent; in the sequence.
  };
  void plan_runs(const ShardLayout& layout);

  const Parameters& parameters_;
  Communicator* communicator_;
  std::int64_t most_ = 0;  // Rows of the rank that has most.
  std::vector<Run> runs_;
  Tensor<float> sums_, own_, received_;
};

}  // namespace lockstep
