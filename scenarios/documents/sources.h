// The two kinds of data source that open_data returns.
#pragma once

#include <memory>

#include "scenarios/documents/documents.h"

namespace lockstep {

// Kinds lengths and distribution: drawn tokens.
std::unique_ptr<DataSource> open_drawn_data(const Scenario& scenario);
// Kinds text and jsonl: bytes are tokens.
std::unique_ptr<DataSource> open_byte_data(const Scenario& scenario);

}  // namespace lockstep
