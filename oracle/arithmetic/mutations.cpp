#include "oracle/arithmetic/mutations.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::oracle {

Mutant::Mutant(const std::string& name) {
  if (name.empty()) return;
  const auto found = std::find(std::begin(kMutations), std::end(kMutations), name);
  if (found == std::end(kMutations))
    throw std::invalid_argument("the oracle has no planted error named " + name);
  index_ = static_cast<int>(found - std::begin(kMutations));
}

}  // namespace lockstep::oracle
