// Documents of files, their pieces and packs, computed from docs/scenario-reference.md 7 alone.
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep::recount {

// A document of a file before it is cut.
struct Whole {
  std::vector<std::int32_t> tokens;
  std::vector<bool> selectable;  // Whether each token may be a target.
};
// The documents at data.path in the order of its files or lines.
std::vector<Whole> documents_of_files(const Scenario& scenario);

// Tokens [begin, end) of a document, and whether the token behind them may be a target.
struct Piece {
  const Whole* whole = nullptr;
  std::int64_t begin = 0, end = 0;
  bool looks_on = false;

  std::int64_t length() const { return end - begin; }
  // The token that row i of the piece would predict if nothing masked it, -1 for none.
  std::int32_t next(std::int64_t i) const;
};
std::vector<Piece> pieces_of(const Scenario::Data& data, const std::vector<Whole>& documents);

// Next-fit: a piece that does not fit the rows left in the pack opens the next one.
std::vector<std::vector<Piece>> next_fit(const Scenario::Data& data,
                                         const std::vector<Piece>& pieces);

}  // namespace lockstep::recount
