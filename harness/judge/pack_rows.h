// Finds the document of each row of a pack from the documents alone, to name where a difference is.
#pragma once

#include <cstdint>

#include "scenarios/documents/documents.h"

namespace lockstep {

struct RowPlace {
  std::int64_t document = -1;  // Document::number, -1 for a padding row.
  std::int64_t position = -1;  // The row's index in the document.
};
RowPlace place_of_row(const Scenario::Data& data, const Microbatch& microbatch, std::int64_t row);

}  // namespace lockstep
