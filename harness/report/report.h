// Results for people and for CI: the table, the block of a failure, JUnit; and the exit status.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/terminal.h"
#include "harness/case/verdict.h"

namespace lockstep {

std::string seconds_text(double seconds);  // "1.234"
// Neither holds nor skipped.
bool fails(const CaseResult& result);
// The lines of a report about it, in order: place, tensor, element, engine, oracle, distance.
std::vector<std::pair<std::string, std::string>> difference_rows(const FirstDifference& where);
std::vector<std::pair<std::string, std::string>> wrong_op_rows(const WrongOp& wrong);
// On a terminal verdicts have colours, what failed has no reason, since its block has it, and the
// columns of counters are left out where they do not fit.
std::string table(const std::vector<CaseResult>& results, const Terminal& terminal = {});
// "FAIL name (numerics): ...", the first difference, and the line that replays it.
std::string failure_block(const CaseResult& result);
// The same as a terminal shows it.
std::string failure_block(const CaseResult& result, const Terminal& terminal);
// The commands that lead on from a failure: again by its file, smaller, as a page. "" without a
// replay line.
std::string next_commands(const CaseResult& result);
// `interrupted`: a signal came before the last result; a property says so.
std::string junit(const std::vector<CaseResult>& results, bool interrupted = false);

ExitStatus exit_status(const std::vector<CaseResult>& results);

}  // namespace lockstep
