// Whether a scenario can show anything: what its documents and its numbers forbid it to show,
// before a run of it.
#pragma once

#include <string>

#include "scenarios/documents/documents.h"

namespace lockstep {

// "", or the first counter of which more is asked than the scenario allows, such as copies where
// every tensor is smaller than offload.min_bytes. A run of it can only fail.
std::string asked_in_vain(const Scenario& scenario, const DataSource& data);

// L12 again, for runs whose documents are too many for the reader to ask.
bool some_step_has_a_target(const Scenario& scenario, const DataSource& data);

// "" or two ranks whose documents are the same in all steps, as a sentence: a blind spot. Ranks
// with a handful of tokens are passed over.
std::string ranks_with_the_same_documents(const Scenario& scenario, const DataSource& data);

}  // namespace lockstep
