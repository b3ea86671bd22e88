// Text for a terminal: colours for verdicts, lines that fit. Anything else gets the text as it is.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

enum class Colour : unsigned char { red, green, yellow };

struct Terminal {
  bool colours = false;
  std::size_t width = 0;  // 0: no terminal, and lines are as long as they are.
};
// That of this descriptor. NO_COLOR that is set and not empty, and TERM=dumb, take the colours
// away.
Terminal terminal_at(int descriptor);

std::string coloured(const std::string& text, Colour colour, const Terminal& terminal);
// Breaks lines that are too wide between words; their further lines are indented by `hang`. A word
// that is wider, as a token is, stays whole, and so does a line that holds a command.
std::string fitted(const std::string& text, const Terminal& terminal, std::size_t hang = 2);

}  // namespace lockstep
