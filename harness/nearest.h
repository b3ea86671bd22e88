// The known word nearest to a mistyped one.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

std::size_t edit_distance(const std::string& a, const std::string& b);
// Of equally near words the first. `words` is not empty.
const std::string& nearest(const std::string& word, const std::vector<std::string>& words);

}  // namespace lockstep
