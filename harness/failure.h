// What is thrown becomes an exit status and one line on stderr.
#pragma once

#include <string>

#include "harness/exit_status.h"

namespace lockstep {

// Of the exception that is being handled; `who` stands before its words ("lockstep: ", "lockstep: rank 2: ").
ExitStatus report_failure(const std::string& who);

}  // namespace lockstep
