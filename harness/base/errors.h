// Exit statuses of the command line, and the failures that lead to them.
#pragma once

#include <stdexcept>

namespace lockstep {

// What help and the manual say of them.
inline constexpr char kExitStatuses[] =
    "exit status: 0 all held, 1 violated, 2 bad request, 3 the environment failed, 4 hang, 5 gave "
    "up";

enum class ExitStatus : int {
  held = 0,
  violated = 1,
  bad_request = 2,
  world_failed = 3,
  hang = 4,
  gave_up = 5
};

// The request is wrong: option, file, token.
struct RequestError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// An output of the command is one of its inputs, or another output: nothing is written, no report
// of this failure either.
struct OutputClash : RequestError {
  using RequestError::RequestError;
};
// The environment failed: no device, disk full.
struct WorldError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The budget was spent before there was a result.
struct GaveUp : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A signal came (interrupts.h).
struct Interrupted : GaveUp {
  using GaveUp::GaveUp;
};

}  // namespace lockstep
