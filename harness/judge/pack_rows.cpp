#include "harness/judge/pack_rows.h"

namespace lockstep {

RowPlace place_of_row(const Scenario::Data& data, const Microbatch& microbatch, std::int64_t row) {
  std::int64_t first = 0;
  for (const Document& document : microbatch.documents) {
    const auto length = static_cast<std::int64_t>(document.tokens.size());
    if (row >= first && row < first + length) return {document.number, row - first};
    first += slot_rows(length, data.gaps, data.align);
  }
  return {};
}

}  // namespace lockstep
