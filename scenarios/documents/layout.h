// The number and lengths of the documents and microbatches of a step.
#pragma once

#include <cstdint>

#include "scenarios/documents/documents.h"

namespace lockstep {

// Documents that a rule looks at; a search that is longer is left to the run.
inline constexpr std::int64_t kMostWork = 1'000'000;

// Whether the documents are bytes at data.path.
inline bool reads_bytes(const Scenario::Data& data) {
  return data.kind == DataKind::text || data.kind == DataKind::jsonl;
}

// Whether the shape draws how many documents a pack has, and their lengths so that they fill it.
inline bool draws_counts(Shape shape) {
  return shape == Shape::measured || shape == Shape::published || shape == Shape::histogram;
}

// Microbatches of a rank in any step, all changes included.
std::int64_t fewest_microbatches(const Scenario::Training& training);
std::int64_t most_microbatches(const Scenario::Training& training);
// Global microbatches of a step: those of all data-parallel ranks.
std::int64_t global_microbatches(const Scenario& scenario, std::int64_t step);

// cuda_graph.max_seqlen: the longest document that captured launches are made for.
std::int64_t longest_captured(const Scenario& scenario);

// The longest document whose slot fits a pack, 0 if none does.
std::int64_t longest_fitting(const Scenario::Data& data);

// Lengths of one global microbatch, cut to pack_length where `long_documents` is truncate. Kinds
// lengths, distribution.
MicrobatchLengths microbatch_lengths(const Scenario& scenario, std::int64_t step,
                                     std::int64_t microbatch);

// Kind distribution: drawn, and always fits a pack. See documents_distribution.cpp.
MicrobatchLengths drawn_lengths(const Scenario::Data& data, std::int64_t step,
                                std::int64_t microbatch);

// The lengths of documents that have their tokens.
MicrobatchLengths lengths_of(const Microbatch& microbatch);
std::int64_t tokens_of(const StepData& step);

// Rows that the slots of these documents take together.
std::int64_t pack_rows(const Scenario::Data& data, const MicrobatchLengths& lengths);

// What a graph must be made for so that it can replay these documents.
struct GraphNeed {
  std::int64_t slots = 0, longest = 0;
};
GraphNeed need_of(const Scenario::Data& data, const MicrobatchLengths& lengths);
// What the needs of several ranks or microbatches come to together.
GraphNeed larger(GraphNeed a, GraphNeed b);
// Why the largest bucket's graphs cannot replay them, if they cannot. Too many documents count
// before too long ones.
enum class Unfit { no, documents, length };
Unfit unfit(const Scenario& scenario, GraphNeed need);

// Slots these documents take, the dummy slot of `append_dummy_seq` included when rows are left
// over.
std::int64_t slots_in_use(const Scenario::Data& data, const MicrobatchLengths& lengths);

}  // namespace lockstep
