// The documents of a step on this rank: loaded, and told which bucket each microbatch takes.
#pragma once

#include <vector>

#include "engine/data/loader.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

class StepPacks {
 public:
  // `buckets`: capacities of the graphs, increasing.
  StepPacks(Loader& loader, const PackShape& shape, std::vector<std::int64_t> buckets, int rank, int ranks)
      : loader_(loader), shape_(shape), buckets_(std::move(buckets)), rank_(rank), ranks_(ranks) {}

  // Microbatch m of rank r has number m * R + r in `data`.
  void load(const StepData& data, const Stream& compute);

  int count() const { return static_cast<int>(own_.size()); }
  std::int64_t tokens() const { return tokens_; }  // Of the documents of all ranks.
  // Whether a graph can replay the microbatch is decided from the documents of all ranks, so that they decide alike.
  bool fits(int microbatch) const { return all_[static_cast<std::size_t>(microbatch)] >= 0; }
  bool all_fit() const;
  // Of the documents of this rank's microbatch.
  std::int64_t tokens_in(int microbatch) const { return own_tokens_[static_cast<std::size_t>(microbatch)]; }
  // The bucket that this rank's microbatch takes; -1: it has more documents than the largest holds.
  int bucket(int microbatch) const;
  int largest_bucket() const;

 private:
  int bucket_for(std::int64_t slots) const;

  Loader& loader_;
  const PackShape shape_;
  const std::vector<std::int64_t> buckets_;
  const int rank_, ranks_;
  std::vector<int> all_, own_;  // Buckets by microbatch: for the documents of all ranks, for this rank's.
  std::vector<std::int64_t> own_tokens_;
  std::int64_t tokens_ = 0;
};

}  // namespace lockstep
