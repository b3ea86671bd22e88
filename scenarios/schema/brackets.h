// The brackets of a list in a file, for the advice on one that has too few.
#pragma once

#include <optional>
#include <string>

#include "scenarios/syntax/node.h"

namespace lockstep {

// How many brackets are around each scalar of a list; nothing if they differ, or something else is
// in it. An empty list may stand for any number.
std::optional<int> levels_of_brackets(const Node& node);

// A list of numbers as it was written; "" if it is too long to be quoted, or holds other scalars.
std::string numbers_as_written(const Node& node);

}  // namespace lockstep
