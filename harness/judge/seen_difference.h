// The first difference that the comparison of this process's run has found so far, as words, for
// the report of a run that does not come to its end.
#pragma once

#include <string>

namespace lockstep {

void forget_seen_difference();                        // A run begins.
void note_seen_difference(const std::string& words);  // Kept if it is the first.
const char* seen_difference();  // "" for none. May be called by a handler of a signal.

}  // namespace lockstep
