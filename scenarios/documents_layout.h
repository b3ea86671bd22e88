// How long the documents of a step are, before any token is drawn: kinds lengths and distribution.
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep {

// Documents that a rule looks at; a search that is longer is left to the run.
inline constexpr std::int64_t kMostWork = 1'000'000;

// Global microbatches of a step: those of all data-parallel ranks.
std::int64_t global_microbatches(const Scenario& scenario, std::int64_t step);

// The longest document whose slot fits a pack, 0 if none does.
std::int64_t longest_fitting(const Scenario::Data& data);

// Lengths of one global microbatch, cut to pack_length where `long_documents` is truncate. Kinds lengths, distribution.
MicrobatchLengths microbatch_lengths(const Scenario& scenario, std::int64_t step, std::int64_t microbatch);

// Kind distribution: drawn, and always fits a pack. See documents_distribution.cpp.
MicrobatchLengths drawn_lengths(const Scenario::Data& data, std::int64_t step, std::int64_t microbatch);

// Slots these documents take, the dummy slot of `append_dummy_seq` included when rows are left over.
std::int64_t slots_in_use(const Scenario::Data& data, const MicrobatchLengths& lengths);

}  // namespace lockstep
