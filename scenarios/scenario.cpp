#include "scenarios/scenario.h"

#include <algorithm>
#include <iterator>

namespace lockstep {

std::int64_t Scenario::Training::microbatches_at(std::int64_t step) const {
  // Their steps increase (L14). A search by halves, because a run asks for each of its steps.
  const auto next =
      std::partition_point(change_microbatches_at.begin(), change_microbatches_at.end(),
                           [step](const MicrobatchChange& change) { return change.step <= step; });
  return next == change_microbatches_at.begin() ? microbatches : std::prev(next)->microbatches;
}

std::vector<Scenario::Block> Scenario::blocks() const {
  std::vector<Block> list;
  const std::string& symbols = model.pattern;
  for (int i = 0; i < static_cast<int>(symbols.size()); ++i) {
    const bool pair = symbols[i] == '*' && i + 1 < static_cast<int>(symbols.size()) &&
                      (symbols[i + 1] == '-' || symbols[i + 1] == 'E');
    list.push_back({i, pair ? 2 : 1});
    i += pair ? 1 : 0;
  }
  return list;
}

}  // namespace lockstep
