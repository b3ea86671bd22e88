#include "engine/norm_sequence.h"

#include <algorithm>

#include "kernels/fault.h"
#include "kernels/optimizer.h"

namespace lockstep {

NormSequence::NormSequence(TensorPool& pool, const Parameters& parameters, const ShardLayout* layout,
                           Communicator* communicator)
    : parameters_(parameters), communicator_(communicator), sums_(pool.make<float>(1, parameters.norm_rows())) {
  if (layout == nullptr) return;
  plan_runs(*layout);
  own_ = pool.make<float>(1, most_);
  received_ = pool.make<float>(1, most_ * layout->ranks);
}

// A rank sends its rows in the order of its views. Where one rank has neighbouring rows they are one run.
void NormSequence::plan_runs(const ShardLayout& layout) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(layout.ranks));
  std::vector<std::vector<Run>> of_rank(sent.size());
  std::int64_t start = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    for (const Bucket& bucket : layout.buckets) {
      for (const Piece& piece : bucket.pieces) {
        for (int r = 0; piece.parameter == spec.index && r < layout.ranks; ++r) {
          const OwnRows own = layout.own(bucket, piece, r);
          std::vector<Run>& runs = of_rank[static_cast<std::size_t>(r)];
          std::int64_t& from = sent[static_cast<std::size_t>(r)];
          const bool joins = !runs.empty() && runs.back().to + runs.back().count == start + own.row;
          if (joins) runs.back().count += own.rows;
          if (!joins && own.rows > 0) runs.push_back({from, start + own.row, own.rows});
          from += own.rows;
        }
      }
    }
    start += spec.norm_rows();
  }
  most_ = *std::max_element(sent.begin(), sent.end());
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    for (Run run : of_rank[r]) {
      run.from += static_cast<std::int64_t>(r) * most_;
      runs_.push_back(run);
    }
  }
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
  for (const Run& run : runs_) {
    if (fault("norm-of-one-shard") && run.from / most_ != communicator_->rank()) continue;
    stream.copy(sums_.data + run.to, received_.data + run.from, static_cast<std::size_t>(run.count) * sizeof(float),
                CopyKind::device_to_device);
  }
  return sums_;
}

}  // namespace lockstep
