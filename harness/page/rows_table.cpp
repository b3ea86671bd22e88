#include "harness/page/rows_table.h"

#include <algorithm>
#include <cstdio>

#include "harness/page/html_text.h"
#include "harness/page/page.h"

namespace lockstep {
namespace {

namespace json = boost::json;

double number_in(const json::object& row, const char* key) {
  const json::value* value = row.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

std::string cell(const json::object& row, const RowColumn& column, double most) {
  const json::value* value = row.if_contains(column.key);
  const bool number = value != nullptr && value->is_number() && column.scale != 0;
  char text[48] = "";
  if (number)
    std::snprintf(text, sizeof text, "%.*f", column.digits,
                  value->to_number<double>() * column.scale);
  std::string out = element("td", number ? "n" : "", number ? text : text_in(row, column.key));
  if (!column.has_bar) return out;
  char width[24];
  std::snprintf(width, sizeof width, "%.1f", number ? 160 * number_in(row, column.key) / most : 0);
  return out + "<td><span class=\"bar\" style=\"width: " + width + "px\"></span></td>";
}

}  // namespace

std::string rows_table(const json::array& rows, const std::vector<RowColumn>& columns) {
  if (rows.empty()) return "";
  std::string head, body;
  std::vector<double> most(columns.size(), 1e-300);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    head += element("th", columns[i].scale == 0 ? "" : "n", columns[i].title);
    if (columns[i].has_bar) head += "<th></th>";
    for (const json::value& row : rows)
      most[i] = std::max(most[i], number_in(row.as_object(), columns[i].key));
  }
  for (const json::value& row : rows) {
    body += "<tr>";
    for (std::size_t i = 0; i < columns.size(); ++i)
      body += cell(row.as_object(), columns[i], most[i]);
    body += "</tr>\n";
  }
  return "<div class=\"wide\"><table class=\"results\">\n<thead><tr>" + head +
         "</tr></thead>\n<tbody>\n" + body + "</tbody></table></div>\n";
}

const json::array& rows_at(const json::value& report, const char* pointer) {
  static const json::array none;
  boost::system::error_code absent;
  const json::value* found = report.find_pointer(pointer, absent);
  return found != nullptr && found->is_array() ? found->get_array() : none;
}

}  // namespace lockstep
