#include "engine/train/norm_sequence.h"

#include <algorithm>
#include <limits>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/rules/legality.h"

namespace lockstep {

namespace {

// Rows of a parameter that a rank sends. A rank sends its rows in the order of its views.
struct SentRows {
  int rank = 0, parameter = 0;
  std::int64_t row = 0, rows = 0;
};

// The rows of all ranks whose sums this one reads, in the order of parameters.
std::vector<SentRows> rows_of_ranks(const Scenario& scenario, const ParameterList& list,
                                    int own_rank) {
  const int data = static_cast<int>(scenario.parallel.data),
            stages = static_cast<int>(scenario.parallel.pipeline);
  const bool sharded = scenario.fsdp.strategy != Sharding::no_shard;
  const int replica = own_rank % data;
  std::vector<ShardLayout> layouts;
  for (int stage = 0; stage < stages; ++stage)
    layouts.emplace_back(list, scenario, data, stores_bf16(scenario), stage);
  std::vector<SentRows> all;
  for (const ParameterSpec& spec : list.specs) {
    for (int stage = 0; stage < stages; ++stage) {
      const ShardLayout& layout = at(layouts, stage);
      for (const Bucket& bucket : layout.buckets) {
        for (const Extent& extent : bucket.extents) {
          if (extent.parameter != spec.index) continue;
          const int apart = static_cast<int>(bucket.sources);
          if (!sharded) {  // The ranks of a stage have the same, but for the experts of its group.
            for (const int peer : expert_peers(scenario, stage * data + replica)) {
              const std::int64_t first = peer % apart * spec.norm_rows();
              all.push_back({peer, spec.index, first + extent.row, extent.rows});
            }
            continue;
          }
          for (int r = 0; r < data; ++r) {
            const OwnRows own = layout.own(bucket, extent, r);
            const std::int64_t first = r % apart * spec.norm_rows();
            all.push_back({stage * data + r, spec.index, first + own.row, own.rows});
          }
        }
      }
    }
  }
  return all;
}

}  // namespace

NormSequence::NormSequence(const Stream& stream, TensorPool& pool, const Parameters& parameters,
                           const Scenario& scenario, Communicator* communicator)
    : parameters_(parameters),
      communicator_(communicator),
      sums_(pool.make<float>(1, parameters.norm_rows())) {
  const bool sharded = scenario.fsdp.strategy != Sharding::no_shard;
  if (!sharded && scenario.parallel.pipeline == 1 && expert_ranks(scenario) == 1) return;
  plan_ = plan_order(scenario);
  own_ = pool.make<float>(1, most_);
  received_ = pool.make<float>(1, most_ * communicator->size());
  order_ = pool.make<std::int32_t>(1, sums_.cols);
  const std::size_t bytes = plan_.size() * sizeof(std::int32_t);
  stream.device().host_writes(plan_.data(), bytes);
  stream.copy(order_.data, plan_.data(), bytes, CopyKind::host_to_device);
}

// Finds each row of the sequence in the received rows.
std::vector<std::int32_t> NormSequence::plan_order(const Scenario& scenario) {
  struct Sent {
    std::int64_t rank = -1, position = 0;
  };
  const ParameterList list(scenario.model, expert_place(scenario, 0));
  std::vector<std::int64_t> sent(communicator_->size()), start(1);
  for (const ParameterSpec& spec : list.specs)
    start.push_back(start.back() + spec.norm_rows() * spec.place.ranks);
  std::vector<Sent> rows(sums_.cols);
  for (const SentRows& of : rows_of_ranks(scenario, list, communicator_->rank())) {
    std::int64_t& sent_rows = at(sent, of.rank);
    for (std::int64_t row = of.row; row < of.row + of.rows; ++row)
      at(rows, at(start, of.parameter) + row) = {of.rank, sent_rows++};
  }
  most_ = *std::max_element(sent.begin(), sent.end());
  require(most_ * communicator_->size() <= std::numeric_limits<std::int32_t>::max(),
          "rows are counted in 31 bits");
  std::vector<std::int32_t> order;
  for (const Sent& row : rows) {
    require(row.rank >= 0, "every row of the norm is some rank's");
    order.push_back(static_cast<std::int32_t>(row.rank * most_ + row.position));
  }
  return order;
}

void NormSequence::sum_own_rows(const Stream& stream, int first, int end) const {
  const Tensor<float> to = own_ ? own_ : sums_;
  std::int64_t row = 0;
  for (const ParameterView& p : parameters_.views()) {
    if (p.gradient.size() == 0) continue;
    const Tensor<float> rows =
        p.is_vector ? tensor(p.gradient.data, p.gradient.cols, 1) : p.gradient;
    const int index =
        faulty("gradient-norm-misses-a-parameter", p.index, p.index == 1 ? -1 : p.index);
    if (first <= index && index < end) {
      stream.submit(GradientRowSums{.g = rows, .sums = to.columns(row, rows.rows)});
    }
    row += rows.rows;
  }
}

bool NormSequence::has_own_rows(int first, int end) const {
  return std::ranges::any_of(parameters_.views(), [=](const ParameterView& p) {
    return p.gradient.size() > 0 && first <= p.index && p.index < end;
  });
}

void NormSequence::clear_unused(const Stream& stream) const {
  std::int64_t rows = 0;
  for (const ParameterView& p : parameters_.views()) {
    if (p.gradient.size() > 0) rows += p.is_vector ? p.gradient.cols : p.gradient.rows;
  }
  if (own_ && rows < own_.cols)
    stream.submit(ZeroGradient{.acc = own_.columns(rows, own_.cols - rows)});
}

void NormSequence::exchange(const Stream& stream) const {
  if (!own_) return;
  const std::size_t bytes = static_cast<std::size_t>(most_) * sizeof(float);
  communicator_->all_gather(stream, {"norm"}, received_.data, own_.data, bytes);
}

Tensor<float> NormSequence::sums(const Stream& stream) const {
  if (!own_) return sums_;
  stream.submit(OrderRowSums{.from = received_, .order = order_, .to = sums_});
  const Tensor<float> shuffled = faulty("norm-in-the-order-of-ranks", sums_, received_);
  return faulty("norm-of-one-shard", shuffled, own_);
}

}  // namespace lockstep
