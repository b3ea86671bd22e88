// The rows of a pack, computed from docs/scenario-reference.md alone.
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep::recount {

// One value for each of the pack_length rows. Rows of no document have -1 everywhere.
struct PackRows {
  std::vector<std::int64_t> token, target, document, position;
  friend bool operator==(const PackRows&, const PackRows&) = default;
};
PackRows rows_of(const Scenario::Data& data, const Microbatch& microbatch);

// Rows of a document's slot.
std::int64_t rows_of_slot(const Scenario::Data& data, std::int64_t length);
// The greatest length whose slot fits a pack, 0 if none does.
std::int64_t longest_document(const Scenario::Data& data);

}  // namespace lockstep::recount
