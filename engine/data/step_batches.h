// The documents of a step on this rank: loads them and chooses the bucket of each microbatch.
#pragma once

#include <vector>

#include "engine/data/loader.h"
#include "kernels/core/at.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

// Why graphs cannot replay a microbatch, if they cannot. Too many documents count before too long
// ones.
enum class Unreplayable : std::uint8_t { no, documents, length };

class StepBatches {
 public:
  // `buckets`: the capacities of the graphs, increasing. `several_stages`: the pipeline has several
  // stages, which compare the digests of their documents.
  StepBatches(Loader& loader, const PackShape& shape, std::vector<std::int64_t> buckets, int rank,
              int ranks, bool several_stages)
      : loader_(loader),
        shape_(shape),
        buckets_(std::move(buckets)),
        rank_(rank),
        ranks_(ranks),
        several_stages_(several_stages) {}

  // Microbatch m of rank r has number m * R + r in `data`.
  void load(const StepData& data, const Stream& compute);

  int count() const { return static_cast<int>(own_.size()); }
  std::int64_t tokens() const { return tokens_; }  // In the documents of all ranks.
  // Whether a graph can replay the microbatch. All ranks decide alike, because they look at the
  // documents of all ranks.
  bool fits(int microbatch) const { return at(all_, microbatch) >= 0; }
  bool all_fit() const;
  Unreplayable reason(int microbatch) const { return at(reasons_, microbatch); }
  // The whole step's.
  Unreplayable reason() const;
  // Tokens of documents in this rank's microbatch.
  std::int64_t tokens_in(int microbatch) const { return at(own_tokens_, microbatch); }
  // A digest of this rank's documents and targets, which all stages must share. It is computed
  // only if there are several stages.
  std::uint64_t digest(int microbatch) const { return at(digests_, microbatch); }
  // The bucket that this rank's microbatch takes; -1 if it has more documents than the largest
  // bucket holds, or longer ones than its launches are made for.
  int bucket(int microbatch) const;
  int largest_bucket() const;

 private:
  // What a pack asks of a graph: room for its slots and for its longest document.
  struct PackNeed {
    std::int64_t slots = 0, longest = 0;
  };
  void load_microbatch(int m, const StepData& data, const Stream& compute);
  void add_tokens(int rank, std::int64_t tokens);
  bool is_too_long(const PackNeed& need) const;
  // -1 if no bucket has so many slots, or none takes such long documents.
  int bucket_for(const PackNeed& need) const;

  Loader& loader_;
  const PackShape shape_;
  const std::vector<std::int64_t> buckets_;
  const int rank_, ranks_;
  const bool several_stages_;
  // Buckets by microbatch: for the documents of all ranks, for this rank's.
  std::vector<int> all_, own_;
  std::vector<Unreplayable> reasons_;
  std::vector<std::int64_t> own_tokens_;
  std::vector<std::uint64_t> digests_;
  std::int64_t tokens_ = 0;
};

}  // namespace lockstep
