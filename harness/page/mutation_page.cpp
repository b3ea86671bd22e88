#include "harness/page/mutation_page.h"

#include <map>
#include <utility>

#include "harness/page/html_text.h"
#include "harness/page/page.h"

namespace lockstep {
namespace {

namespace json = boost::json;

bool is_set(const json::object& one, const char* key) {
  const json::value* value = one.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

// The word, and the colour of a verdict that goes with it.
std::pair<std::string, std::string> state_of(const json::object& one) {
  if (!is_set(one, "finished")) return {"not run", "skipped"};
  if (is_set(one, "equivalent")) return {"equivalent", "skipped"};
  if (is_set(one, "killed")) return {"killed", "holds"};
  return {"survived", "violated"};
}

std::string row_of(const json::object& one) {
  const auto [word, style] = state_of(one);
  std::string out =
      "<tr data-verdict=\"" + html(word) + "\"><td><span class=\"badge " + html(style) + "\">" +
      html(word) + "</span></td>" + element("td", "", text_in(one, "name")) +
      element("td", "", text_in(one, "class")) + element("td", "", text_in(one, "judge")) +
      element("td", "", text_in(one, "amplifier")) + element("td", "n", text_in(one, "cases")) +
      "<td>";
  std::string more = element("p", "reason", text_in(one, "reason")) +
                     element("p", "note", text_in(one, "argument"));
  if (!text_in(one, "scenario").empty())
    more += element("p", "note", "by scenario " + text_in(one, "scenario"));
  if (!text_in(one, "replay").empty()) more += copyable(text_in(one, "replay"));
  return out + folded("more", more) + "</td></tr>\n";
}

}  // namespace

std::string mutation_page(const json::object& report) {
  std::map<std::string, int> counts;
  std::string rows, boxes, numbers;
  for (const json::value& value : report.at("results").as_array()) {
    ++counts[state_of(value.as_object()).first];
    rows += row_of(value.as_object());
  }
  for (const auto& [word, count] : counts) {
    const std::string style = word == "survived" ? "violated" : word == "killed" ? "held" : "none";
    numbers += "<li class=\"" + style + "\"><b>" + std::to_string(count) + "</b> " + html(word) +
               "</li>\n";
    boxes += "<label><input type=\"checkbox\" checked value=\"" + html(word) + "\"> " + html(word) +
             "</label>\n";
  }
  Page page{.title = "lockstep: mutate",
            .kind = "planted faults",
            .failed = counts.contains("survived"),
            .facts = facts_of(report),
            .counts = "<ul class=\"counts\">\n" + numbers + "</ul>\n"};
  if (report.contains("interrupted"))
    page.body += "<p class=\"interrupted\">Interrupted: what was done until then.</p>\n";
  page.body +=
      "<div class=\"filter\" hidden>\n<label>Search <input type=\"search\" placeholder=\"name, "
      "class, judge, reason\"></label>\n" +
      boxes + "<output></output>\n</div>\n";
  page.body +=
      "<section>\n<h2>Faults</h2>\n<div class=\"wide\"><table class=\"results\">\n<thead><tr>"
      "<th>state</th><th>fault</th><th>class</th><th>judge</th><th>amplifier</th>"
      "<th class=\"n\">cases</th><th></th></tr></thead>\n<tbody>\n" +
      rows + "</tbody></table></div>\n</section>\n";
  return html_page(page);
}

}  // namespace lockstep
