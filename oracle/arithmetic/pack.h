// The rows of a microbatch in which its documents lie.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/arithmetic/mutations.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep::oracle {

struct Piece {
  std::int64_t first = 0, rows = 0;
  std::uint32_t number = 0;  // Key of dropout.
};

struct PackedBatch {
  std::int64_t rows = 0;
  std::vector<Piece> documents;  // Documents with rows, in row order.
  std::vector<Piece>
      runs;  // Rows of documents that touch, as one piece: for what looks at a row alone.
  std::vector<std::int32_t> tokens, targets;  // Per row; -1 for no document and no target.
  std::int64_t longest = 0;
};

// Throws std::invalid_argument if the documents do not fit the scenario.
PackedBatch make_pack(const Scenario& scenario, const Microbatch& microbatch, Mutant mutant);

// The boundaries of a pack (arithmetic.md 1) up to its last slot in use: documents, empty ones
// included, and the dummy slot if there is one.
struct Boundaries {
  std::vector<std::int64_t> cu_seqlens, cu_seqlens_padded;  // Equal lengths, at least 1 entry.
};

// Throws std::invalid_argument if the documents do not fit the pack.
Boundaries boundaries_of(const Scenario& scenario, const Microbatch& microbatch);

}  // namespace lockstep::oracle
