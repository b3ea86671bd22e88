// Version and revision of this build.
#pragma once

namespace lockstep {

const char* version();   // "0.1.0"
const char* revision();  // The commit this was built from, with "-dirty" if files differ; "unknown"
                         // outside a checkout.

}  // namespace lockstep
