#include "harness/base/version.h"

namespace lockstep {

const char* version() { return LOCKSTEP_VERSION; }
const char* source_library() { return LOCKSTEP_SOURCE_LIBRARY; }

}  // namespace lockstep
