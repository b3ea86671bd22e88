// The name of a judge, as expect.judge has it.
#pragma once

#include <optional>
#include <string>

#include "scenarios/schema/types.h"

namespace lockstep {

// One of the words of JudgeKind, without those of a command that ended before it could judge. A
// misspelt judge is told all of them: no run would ever be found by it.
struct Judge : Name {
  Judge();
  std::optional<std::string> read(const Item& item) const;
};

}  // namespace lockstep
