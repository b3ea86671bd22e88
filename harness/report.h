// Results for people and for CI: the table, the block of a failure, JUnit; and the exit status.
#pragma once

#include <string>
#include <vector>

#include "harness/exit_status.h"
#include "harness/verdict.h"

namespace lockstep {

std::string seconds_text(double seconds);  // "1.234"
std::string table(const std::vector<CaseResult>& results);
// "FAIL name (numerics): ...", the first difference, and the line that replays it.
std::string failure_block(const CaseResult& result);
std::string junit(const std::vector<CaseResult>& results);

ExitStatus exit_status(const std::vector<CaseResult>& results);

}  // namespace lockstep
