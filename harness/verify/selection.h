// Which of the planned cases `verify` runs: -k, --last-failed, --shard.
#pragma once

#include <string>
#include <vector>

#include "harness/base/work_share.h"
#include "harness/run/suite.h"

namespace lockstep {

struct Selection {
  std::string pattern;      // -k; "" for all.
  std::string last_failed;  // A JSON report of an earlier run; "" for none.
  WorkShare share;          // Its cases are those that these two leave.
};

// Whether the case's name, precision or file (with its folder) contains the pattern, in which `*`
// and `?` stand for any text and any byte.
bool matches(const PlannedCase& one, const std::string& pattern);

// Leaves out the other cases. Those that did not fail in the earlier run are left out; those that
// it does not have are not. RequestError where the pattern or the share leaves nothing, or the
// report cannot be read.
void select(std::vector<PlannedCase>& cases, const Selection& selection);

}  // namespace lockstep
