// Rows of a JSON report as a table, with a bar for one of the columns.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

struct RowColumn {
  const char* key;
  std::string title;
  double scale = 1;  // What a number is multiplied with; 0 for words and whole numbers as they are.
  int digits = 3;
  bool has_bar = false;
};
// "" where there are no rows. What a row lacks is empty.
std::string rows_table(const boost::json::array& rows, const std::vector<RowColumn>& columns);
// The array at this JSON pointer; an empty one without it.
const boost::json::array& rows_at(const boost::json::value& report, const char* pointer);

}  // namespace lockstep
