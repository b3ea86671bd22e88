#include "engine/data/step_packs.h"

#include <algorithm>

#include "kernels/core/fault.h"

namespace lockstep {

void StepPacks::load(const StepData& data, const Stream& compute) {
  const int count = static_cast<int>(data.microbatches.size()) / ranks_;
  all_.clear();
  own_.clear();
  own_tokens_.clear();
  tokens_ = 0;
  for (int m = 0; m < count; ++m) {
    std::int64_t most = 0;
    for (int r = 0; r < ranks_; ++r) {
      const HostPack pack = lay_out(shape_, data.microbatches[static_cast<std::size_t>(m * ranks_ + r)]);
      const auto slots = static_cast<std::int64_t>(pack.lengths.size());
      most = std::max(most, slots);
      if (r == rank_ || !fault("tokens-of-one-rank")) tokens_ += pack.document_tokens;
      if (r != (fault("ranks-read-the-same-documents") ? 0 : rank_)) continue;
      loader_.load(m, pack, compute);
      own_.push_back(bucket_for(slots));
      own_tokens_.push_back(pack.document_tokens);
    }
    all_.push_back(fault("ranks-fall-back-alone") ? own_.back() : bucket_for(most));
  }
}

int StepPacks::bucket_for(std::int64_t slots) const {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (slots <= buckets_[i] + fault("capacity-off-by-one")) return static_cast<int>(i);
  }
  return fault("fallback-truncates-to-capacity") ? static_cast<int>(buckets_.size()) - 1 : -1;
}

bool StepPacks::all_fit() const {
  return std::all_of(all_.begin(), all_.end(), [](int bucket) { return bucket >= 0; });
}

int StepPacks::bucket(int microbatch) const {
  return fits(microbatch) ? all_[static_cast<std::size_t>(microbatch)] : own_[static_cast<std::size_t>(microbatch)];
}

int StepPacks::largest_bucket() const { return *std::max_element(all_.begin(), all_.end()); }

}  // namespace lockstep
