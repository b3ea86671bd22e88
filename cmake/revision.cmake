# Writes the source that knows what was built, and only if that changed: cmake -DROOT=... -DOUT=... -P revision.cmake
set(revision unknown)
execute_process(
  COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${ROOT}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed EQUAL 0)
  set(revision ${commit})
  execute_process(
    COMMAND git --no-optional-locks status --porcelain --untracked-files=no WORKING_DIRECTORY ${ROOT}
    OUTPUT_VARIABLE changed ERROR_QUIET)
  if(changed)
    string(APPEND revision -dirty)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[#include "harness/base/version.h"

namespace lockstep {

const char* revision() { return "@revision@"; }

}  // namespace lockstep
]])
