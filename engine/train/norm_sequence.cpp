#include "engine/train/norm_sequence.h"

#include <algorithm>
#include <limits>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"

namespace lockstep {

NormSequence::NormSequence(const Stream& stream, TensorPool& pool, const Parameters& parameters,
                           const ShardLayout* layout, Communicator* communicator)
    : parameters_(parameters),
      communicator_(communicator),
      sums_(pool.make<float>(1, parameters.norm_rows())) {
  if (layout == nullptr) return;
  plan_ = plan_order(*layout);
  own_ = pool.make<float>(1, most_);
  received_ = pool.make<float>(1, most_ * layout->ranks);
  order_ = pool.make<std::int32_t>(1, sums_.cols);
  const std::size_t bytes = plan_.size() * sizeof(std::int32_t);
  stream.device().host_writes(plan_.data(), bytes);
  stream.copy(order_.data, plan_.data(), bytes, CopyKind::host_to_device);
}

// Finds each row of the sequence in the received rows. A rank sends its rows in the order of its
// views.
std::vector<std::int32_t> NormSequence::plan_order(const ShardLayout& layout) {
  struct Sent {
    std::int64_t rank = -1, position = 0;
  };
  std::vector<std::int64_t> sent(layout.ranks);
  std::vector<Sent> rows(sums_.cols);
  std::int64_t start = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    for (const Bucket& bucket : layout.buckets) {
      for (const Extent& extent : bucket.extents) {
        for (int r = 0; extent.parameter == spec.index && r < layout.ranks; ++r) {
          const OwnRows own = layout.own(bucket, extent, r);
          std::int64_t& sent_rows = at(sent, r);
          for (std::int64_t row = own.row; row < own.row + own.rows; ++row) {
            at(rows, start + row) = {r, sent_rows++};
          }
        }
      }
    }
    start += spec.norm_rows();
  }
  most_ = *std::max_element(sent.begin(), sent.end());
  require(most_ * layout.ranks <= std::numeric_limits<std::int32_t>::max(),
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
  // A rank with fewer rows sends zeros at the end, because every byte that is sent needs a value.
  if (own_ && end == std::ssize(parameters_.specs()) && row < own_.cols) {
    stream.submit(ZeroGradient{.acc = own_.columns(row, own_.cols - row)});
  }
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
