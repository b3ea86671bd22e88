// The row sums of all gradients in the order of the global norm. With sharding, or with several
// pipeline stages, each rank sums the rows of its own shards, or of its stage, as their gradients
// become complete; then the ranks exchange the sums, and one kernel puts them in order. Separate
// copies for each run of rows would be dozens, at a time when nothing else runs.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parameters/parameters.h"
#include "engine/parameters/shard_layout.h"

namespace lockstep {

class NormSequence {
 public:
  // `communicator` is of all ranks of the run; null if this rank is alone. The device tables are
  // written on `stream`.
  NormSequence(const Stream& stream, TensorPool& pool, const Parameters& parameters,
               const Scenario& scenario, Communicator* communicator);

  // A rank with fewer rows than another sends zeros behind them, because every byte that is sent
  // needs a value.
  void clear_unused(const Stream& stream) const;
  // Whether this rank has rows of the parameters [first, end), by index.
  bool has_own_rows(int first, int end) const;
  // Adds up the squares of each such row.
  void sum_own_rows(const Stream& stream, int first, int end) const;
  void exchange(const Stream& stream) const;
  // [1, rows of all parameters in index order]
  Tensor<float> sums(const Stream& stream) const;

 private:
  std::vector<std::int32_t> plan_order(const Scenario& scenario);

  const Parameters& parameters_;
  Communicator* communicator_;
  std::int64_t most_ = 0;  // Rows of the rank that has the most.
  Tensor<float> sums_, own_, received_;
  // The position of each row of the sequence in the received rows. It lives on while it is copied
  // to the device.
  std::vector<std::int32_t> plan_;
  Tensor<std::int32_t> order_;  // The same on the device.
};

}  // namespace lockstep
