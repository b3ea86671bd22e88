// A table that is printed row by row, as its numbers come. On a terminal that is too narrow for it
// the columns are as narrow as they can be, and what still does not fit goes on a further line; for
// anything else a row is one line.
#pragma once

#include <string>
#include <vector>

#include "harness/base/terminal.h"

namespace lockstep {

struct Column {
  std::string heading;
  int width;  // With the blanks before it.
  // A terminal that is too narrow gets these; an empty heading: the same.
  std::string narrow_heading = {};
  int narrow_width = 0;
};

class Columns {
 public:
  // The first column has its texts at the left, the others at the right.
  Columns(std::vector<Column> columns, const Terminal& terminal);

  // A note follows behind the columns, whatever its length. Both end with a newline.
  std::string head(const std::string& note = "") const;
  // A row may have fewer cells than there are columns.
  std::string row(const std::vector<std::string>& cells, const std::string& note = "") const;
  bool is_narrow() const { return is_narrow_; }

 private:
  std::vector<Column> columns_;
  Terminal terminal_;
  bool is_narrow_ = false;
};

// The text that printf would print.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);
// Prints text for people to standard output at once. Lines that a terminal is too narrow for are
// broken, and their further lines are indented by `hang`.
void print_fitted(const std::string& text, std::size_t hang = 2);

}  // namespace lockstep
