// The two models that times are published for.
#pragma once

#include <optional>
#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

// "H1": hidden 2048, packs of 8,192 tokens; "S1": hidden 512, packs of 2,048. Both bf16, pattern
// M-M*-M-M*-, four microbatches of about 12 documents, capacity 64, FSDP units of two blocks and of
// four. Nothing for another name.
std::optional<Scenario> standard_model(const std::string& name);

// The floating-point operations that the model's step is said to need: six a weight of a product
// and token, seven a state element and token of the scan, four a causal pair and channel of
// attention; the backward pass twice the forward. Rows of no document count, as in published
// figures.
double model_flop(const Scenario& scenario, const std::vector<MicrobatchLengths>& step);

// Causal pairs inside the documents.
double causal_pairs(const MicrobatchLengths& lengths);

}  // namespace lockstep
