#include "engine/data/step_batches.h"

#include <algorithm>

#include "kernels/core/fault.h"

namespace lockstep {

// FNV-1a by words.
static std::uint64_t digest_of(const HostPackedBatch& pack) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto* words : {&pack.lengths, &pack.tokens, &pack.targets}) {
    for (const std::int32_t word : *words)
      hash = (hash ^ static_cast<std::uint32_t>(word)) * 0x100000001b3u;
  }
  return hash;
}

void StepBatches::load(const StepData& data, const Stream& compute) {
  const int count = static_cast<int>(data.microbatches.size()) / ranks_;
  all_.clear();
  own_.clear();
  reasons_.clear();
  own_tokens_.clear();
  digests_.clear();
  tokens_ = 0;
  for (int m = 0; m < count; ++m) load_microbatch(m, data, compute);
}

// Lays out the documents of all ranks for this number and loads this rank's.
void StepBatches::load_microbatch(int m, const StepData& data, const Stream& compute) {
  const int read = faulty("ranks-read-the-same-documents", rank_, 0);
  PackNeed most;
  for (int r = 0; r < ranks_; ++r) {
    const HostPackedBatch pack = lay_out(shape_, at(data.microbatches, m * ranks_ + r));
    const PackNeed need{.slots = std::ssize(pack.lengths), .longest = pack.longest()};
    most = {std::max(most.slots, need.slots), std::max(most.longest, need.longest)};
    add_tokens(r, pack.document_tokens);
    if (r != read) continue;
    own_.push_back(bucket_for(need));
    loader_.load(m, pack, own_.back() < 0, compute);
    own_tokens_.push_back(pack.document_tokens);
    if (several_stages_) digests_.push_back(digest_of(pack));
  }
  all_.push_back(faulty("ranks-fall-back-alone", bucket_for(most), own_.back()));
  const bool many = most.slots > buckets_.back(), replays = all_.back() >= 0;
  reasons_.push_back(replays ? Unreplayable::no
                     : many  ? Unreplayable::documents
                             : Unreplayable::length);
}

void StepBatches::add_tokens(int rank, std::int64_t tokens) {
  tokens_ += faulty("tokens-of-one-rank", tokens, rank == rank_ ? tokens : 0);
}

bool StepBatches::is_too_long(const PackNeed& need) const {
  return faulty("too-long-documents-are-replayed", need.longest > shape_.max_seqlen, false);
}

static std::int64_t counted(std::int64_t slots) {
  return faulty("slots-in-8-bits", slots, slots & 255);
}

int StepBatches::bucket_for(const PackNeed& need) const {
  const int buckets = static_cast<int>(buckets_.size());
  for (int i = 0; i < buckets && !is_too_long(need); ++i) {
    const std::int64_t capacity = at(buckets_, i);
    const std::int64_t most = faulty("capacity-off-by-one", capacity, capacity + 1);
    if (counted(need.slots) <= most) return i;
  }
  return faulty("fallback-truncates-to-capacity", -1, buckets - 1);
}

bool StepBatches::all_fit() const {
  return std::all_of(all_.begin(), all_.end(), [](int bucket) { return bucket >= 0; });
}

Unreplayable StepBatches::reason() const {
  const auto any = [&](Unreplayable one) {
    return std::ranges::find(reasons_, one) != reasons_.end();
  };
  for (const Unreplayable one : {Unreplayable::documents, Unreplayable::length})
    if (any(one)) return one;
  return Unreplayable::no;
}

int StepBatches::bucket(int microbatch) const {
  return fits(microbatch) ? at(all_, microbatch) : at(own_, microbatch);
}

int StepBatches::largest_bucket() const { return *std::max_element(all_.begin(), all_.end()); }

}  // namespace lockstep
