// The words of every choice, in the order of their enum, which is the order that sets are kept in.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

template <class Enum>
const std::vector<std::string>& words();

template <class Enum>
const std::string& word(Enum value) {
  return words<Enum>()[static_cast<std::size_t>(value)];
}

// The value that one of the words stands for.
template <class Enum>
Enum value_of(const std::string& word) {
  const std::vector<std::string>& all = words<Enum>();
  return static_cast<Enum>(std::find(all.begin(), all.end(), word) - all.begin());
}

const char* to_text(Numerics value);
const char* to_text(GraphImpl value);
const char* to_text(GraphModule value);

// Names that expect.counters may hold.
const std::vector<std::string>& counter_names();
// "none", Y01..Y08, L00..L44.
const std::vector<std::string>& rule_names();

}  // namespace lockstep
