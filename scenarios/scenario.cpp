#include "scenarios/scenario.h"

namespace lockstep {

std::int64_t Scenario::Training::microbatches_at(std::int64_t step) const {
  std::int64_t count = microbatches;
  for (const MicrobatchChange& change : change_microbatches_at) {
    if (change.step <= step) count = change.microbatches;
  }
  return count;
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
