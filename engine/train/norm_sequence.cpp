#include "engine/train/norm_sequence.h"

#include <algorithm>
#include <limits>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/optimizer.h"

namespace lockstep {

NormSequence::NormSequence(const Stream& stream, TensorPool& pool, const Parameters& parameters,
                           const ShardLayout* layout, Communicator* communicator)
    : parameters_(parameters), communicator_(communicator), sums_(pool.make<float>(1, parameters.norm_rows())) {
  if (layout == nullptr) return;
  plan_ = plan_order(*layout);
  own_ = pool.make<float>(1, most_);
  received_ = pool.make<float>(1, most_ * layout->ranks);
  order_ = pool.make<std::int32_t>(1, sums_.cols);
  const std::size_t bytes = plan_.size() * sizeof(std::int32_t);
  stream.device().host_writes(plan_.data(), bytes);
  stream.copy(order_.data, plan_.data(), bytes, CopyKind::host_to_device);
}

// A rank sends its rows in the order of its views.
std::vector<std::int32_t> NormSequence::plan_order(const ShardLayout& layout) {
  struct Sent {
    std::int64_t rank = -1, at = 0;
  };
  std::vector<std::int64_t> sent(static_cast<std::size_t>(layout.ranks));
  std::vector<Sent> rows(static_cast<std::size_t>(sums_.cols));
  std::size_t start = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    for (const Bucket& bucket : layout.buckets) {
      for (const Piece& piece : bucket.pieces) {
        for (int r = 0; piece.parameter == spec.index && r < layout.ranks; ++r) {
          const OwnRows own = layout.own(bucket, piece, r);
          std::int64_t& at = sent[static_cast<std::size_t>(r)];
          for (std::int64_t row = own.row; row < own.row + own.rows; ++row) {
            rows[start + static_cast<std::size_t>(row)] = {r, at++};
          }
        }
      }
    }
    start += static_cast<std::size_t>(spec.norm_rows());
  }
  most_ = *std::max_element(sent.begin(), sent.end());
  require(most_ * layout.ranks <= std::numeric_limits<std::int32_t>::max(), "rows are counted in 31 bits");
  std::vector<std::int32_t> order;
  for (const Sent& row : rows) {
    require(row.rank >= 0, "every row of the norm is some rank's");
    order.push_back(static_cast<std::int32_t>(row.rank * most_ + row.at));
  }
  return order;
}

void NormSequence::sum_own_rows(const Stream& stream, int first, int end) const {
  const Tensor<float> to = own_ ? own_ : sums_;
  std::int64_t row = 0;
  for (const ParameterView& p : parameters_.views()) {
    if (p.gradient.size() == 0) continue;
    if (fault("gradient-norm-misses-a-parameter") && p.index == 1) continue;
    const Tensor<float> rows = p.is_vector ? tensor(p.gradient.data, p.gradient.cols, 1) : p.gradient;
    if (first <= p.index && p.index < end) {
      stream.submit(GradientRowSums{.g = rows, .sums = to.columns(row, rows.rows)});
    }
    row += rows.rows;
  }
  // Ranks with fewer rows send what has a value too.
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
  if (fault("norm-of-one-shard")) return own_;
  if (fault("norm-in-the-order-of-ranks")) return received_;
  stream.submit(OrderRowSums{.from = received_, .order = order_, .to = sums_});
  return sums_;
}

}  // namespace lockstep
