// What fp8 makes of a scenario's layers (docs/arithmetic.md, section 5).
#pragma once

#include <optional>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Whether the model has this linear layer.
bool has_fp8_layer(const Scenario::Model& model, Fp8Layer layer);
// The layers whose input is not saved but computed again, so that their weight gradients need to
// quantise it again. In the order of the enum.
std::vector<Fp8Layer> implied_original_inputs(const Scenario::Model& model);
// The default of fp8.weight_cache: memory that is gathered for each pass does not last.
bool default_weight_cache(const Scenario& scenario);

// Ranks gather the codes of fp8 products, whose owners quantise their rows.
bool gathers_fp8_codes(const Scenario& scenario);

// Slots save the codes of X, not X itself.
bool saves_codes(const Scenario& scenario, Fp8Layer layer);
// The layer that reads the norm of a symbol of the pattern; none of `E`.
std::optional<Fp8Layer> reader_of_norm(char symbol);
// The layer saves the codes of X in fp8, and no other op of the backward pass reads X, so X is not
// stored.
bool passes_input(const Scenario& scenario, Fp8Layer layer);

}  // namespace lockstep
