#include "harness/recount/layout.h"

#include <algorithm>

#include "kernels/core/at.h"

namespace lockstep::recount {

std::int64_t rows_of_slot(const Scenario::Data& data, std::int64_t length) {
  if (length == 0) return 0;
  const std::int64_t rows = length + data.gaps;
  const std::int64_t beyond = rows % data.align;
  return beyond == 0 ? rows : rows - beyond + data.align;
}

std::int64_t longest_document(const Scenario::Data& data) {
  return std::max<std::int64_t>(0, data.pack_length - data.pack_length % data.align - data.gaps);
}

PackRows rows_of(const Scenario::Data& data, const Microbatch& microbatch) {
  const std::vector<std::int64_t> none(static_cast<std::size_t>(data.pack_length), -1);
  PackRows rows{none, none, none, none};
  std::int64_t first = 0;
  for (const Document& document : microbatch.documents) {
    for (std::int64_t i = 0; i < std::ssize(document.tokens); ++i) {
      at(rows.token, first + i) = at(document.tokens, i);
      at(rows.target, first + i) = at(document.targets, i);
      at(rows.document, first + i) = document.number;
      at(rows.position, first + i) = i;
    }
    first += rows_of_slot(data, std::ssize(document.tokens));
  }
  return rows;
}

}  // namespace lockstep::recount
