// Sizes that usual cases do not have, each beyond a number at which a table, an index or a count
// could end. A case is about one of them, and small in every other direction.
#pragma once

#include <cstdint>
#include <span>

#include "harness/generate/choices.h"
#include "scenarios/scenario.h"

namespace lockstep {

enum class RareSize : std::uint8_t {
  none,
  many_layers,               // More than 64.
  many_documents,            // More than 255 in a pack, with dropout.
  buckets_at_powers_of_two,  // One below, equal, one above; and packs of as many documents.
  recapture_under_a_limit,   // The memory of graphs is limited.
  evaluation_with_buckets,   // Replayed where graphs may be.
  ends_of_the_vocabulary,    // 2, and beyond 16 bits.
  ends_of_the_experts,       // 2, and the most.
};
inline constexpr std::uint64_t kRareSizes = 7;

struct Swarm;
// The features of such a case: those that it needs on, those that would make it slow off.
void restrict_to(RareSize rare, Swarm& swarm);
// At least 65 symbols of those that the pattern has.
void deepen(Choices& choices, std::string& pattern);
// Sizes of the model, once all are drawn.
void draw_rare_model(Choices& choices, RareSize rare, Scenario::Model& model);
// The documents of a microbatch.
MicrobatchLengths draw_rare_documents(Choices& choices, RareSize rare, const Scenario& scenario);
// Capacities at a power of two, the last of which holds `fewest` documents.
std::vector<std::int64_t> draw_rare_buckets(Choices& choices, std::int64_t around,
                                            std::int64_t fewest);

}  // namespace lockstep
