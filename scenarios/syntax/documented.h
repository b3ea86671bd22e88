// A text that the reference in docs/scenario-reference.md prints.
#pragma once

namespace lockstep {

// Constant and not empty: a table row without its text does not compile.
struct Documented {
  const char* text;
  consteval Documented(const char* given)
      : text(given) {  // NOLINT: rows are written as plain texts.
    if (given == nullptr || *given == '\0') throw "the reference would have an empty cell";
  }
};

}  // namespace lockstep
