// Words of a command line that a shell reads back as they are.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Quotes a word for a shell unless it is plain.
std::string shell_word(const std::string& text);
std::string shell_line(const std::vector<std::string>& words);

}  // namespace lockstep
