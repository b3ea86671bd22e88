// The slip of the pen behind text that is no YAML, in words of the file rather than of the parser.
#pragma once

#include <string>

namespace lockstep {

// "a tab indents line 4, and YAML wants spaces", or "" for what is none of the usual slips. `line`
// is the one where the parser gave up.
std::string yaml_slip(const std::string& bytes, int line);

}  // namespace lockstep
