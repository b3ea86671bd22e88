#include "harness/page/difference_section.h"

#include "harness/page/html_text.h"
#include "harness/page/page.h"
#include "harness/report/report.h"

namespace lockstep {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostRows = 200;  // A list; the JSON has all.

const json::array& list_of(const json::object& difference, const char* key) {
  return difference.at(key).as_array();
}

std::string badge(const std::string& verdict) {
  return "<span class=\"badge " + html(verdict) + "\">" + html(verdict) + "</span>";
}

std::string row_of(const json::object& one) {
  std::string out = "<tr><td>" + html(text_in(one, "name")) + "</td><td>" +
                    html(text_in(one, "numerics")) + "</td><td>";
  if (one.contains("counter")) {
    out +=
        html(text_in(one, "counter") + ": " + text_in(one, "was") + ", now " + text_in(one, "is"));
  } else if (one.contains("seconds")) {
    out += seconds_text(one.at("was_seconds").to_number<double>()) + " s, now " +
           seconds_text(one.at("seconds").to_number<double>()) + " s";
  } else if (one.contains("was")) {
    out += badge(text_in(one, "was")) + " then, now " + badge(text_in(one, "is")) + " " +
           html(text_in(one, "judge").empty() ? "" : "by " + text_in(one, "judge"));
    // The reason of a failure of this run stands in its block.
    if (!text_in(one, "was_reason").empty())
      out += element("p", "reason", "then: " + text_in(one, "was_reason"));
  }
  return out + "</td></tr>\n";
}

std::string table_of(const json::object& difference, const char* key, const char* title) {
  const json::array& list = list_of(difference, key);
  if (list.empty()) return "";
  std::string out = "<h3>" + html(title) + "</h3>\n<div class=\"wide\"><table class=\"results\">\n";
  for (std::size_t i = 0; i < list.size() && i < kMostRows; ++i) out += row_of(list[i].as_object());
  out += "</table></div>\n";
  if (list.size() > kMostRows)
    out += "<p class=\"note\">And " + std::to_string(list.size() - kMostRows) + " more.</p>\n";
  return out;
}

}  // namespace

std::string difference_section(const json::object& difference) {
  constexpr std::pair<const char*, const char*> kLists[] = {
      {"newly_failing", "Newly failing"},     {"mended", "Mended"},
      {"other_failure", "Failing otherwise"}, {"counters", "Other counters"},
      {"slower", "Slower by half or more"},   {"added", "Only in this run"},
      {"gone", "Only in the other run"}};
  std::string counts, tables;
  for (const auto& [key, title] : kLists) {
    const std::size_t size = list_of(difference, key).size();
    std::string words(title);
    counts += "<li class=\"" + std::string(size == 0 ? "none" : key) + "\"><b>" +
              std::to_string(size) + "</b> " + html(words) + "</li>\n";
    tables += table_of(difference, key, title);
  }
  std::string of = text_in(difference, "file");
  if (!text_in(difference, "date").empty()) of += ", of " + text_in(difference, "date");
  if (!text_in(difference, "revision").empty()) of += ", build " + text_in(difference, "revision");
  return "<section class=\"against\">\n<h2>Against another run</h2>\n" + element("p", "note", of) +
         "\n<ul class=\"counts\">\n" + counts + "</ul>\n" +
         (tables.empty() ? "<p>Nothing differs.</p>\n" : tables) + "</section>\n";
}

}  // namespace lockstep
