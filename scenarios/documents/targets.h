// Which token a row must predict, or none: the masks of data.mask.
#pragma once

#include <cstdint>
#include <functional>

#include "scenarios/documents/documents.h"
#include "scenarios/documents/random.h"

namespace lockstep {

// Whether data.mask.microbatches masks this one entirely.
bool is_masked(const Scenario::Data::Mask& mask, std::int64_t microbatch);
// The other masks that look at a place alone, not at bytes: the prefix and the random share.
bool has_loss(const Scenario& scenario, Purpose purpose, const DrawPlace& place, std::int64_t row);

// Fills `targets` from `tokens`: the next token, or -1. `after_last` is what follows the last
// token, -1 if nothing does. `selectable(i)` says whether token i of the document, tokens.size()
// being the one after the last, may be a target.
void set_targets(const Scenario& scenario, Purpose purpose, const DrawPlace& place,
                 std::int32_t after_last, const std::function<bool(std::size_t)>& selectable,
                 Document& document);

// Sums up a step: numbers the documents in order and counts the targets.
void finish_step(StepData& step);

}  // namespace lockstep
