#include "harness/page/describe_page.h"

#include "harness/page/html_text.h"
#include "harness/page/page.h"
#include "harness/page/rows_table.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string section(const std::string& title, const std::string& body) {
  if (body.empty()) return "";
  return "<section>\n" + element("h2", "", title) + "\n" + body + "</section>\n";
}

std::string errors(const json::value& report) {
  std::string out;
  for (const json::value& one : rows_at(report, "/errors"))
    out += "<article>" + element("pre", "", text_in(one.as_object(), "text")) + "</article>\n";
  return section("Refused", out);
}

// A row for each counter, by precision.
std::string counters(const json::object& report) {
  const json::value* all = report.if_contains("expected_counters");
  if (all == nullptr || !all->is_object()) return "";
  std::string out;
  for (const auto& [precision, list] : all->get_object()) {
    json::array rows;
    for (const auto& [name, range] : list.as_object()) {
      json::object row = range.as_object();
      row["counter"] = name;
      rows.push_back(std::move(row));
    }
    out += element("h3", "", std::string(precision)) + "\n" +
           rows_table(rows, {{"counter", "counter", 0},
                             {"min", "at least", 0},
                             {"max", "at most", 0},
                             {"why", "why", 0}});
  }
  return section("What a run must count", out);
}

}  // namespace

std::string describe_page(const json::object& report) {
  const json::value whole = report;
  const bool legal = report.at("legal").as_bool(), built = report.at("built").as_bool();
  Page page{.title = "lockstep: " + text_in(report, "name"),
            .kind = "what a scenario means",
            .failed = !built,
            .facts = facts_of(report)};
  page.facts.emplace_back("scenario", text_in(report, "name"));
  page.facts.emplace_back("file", text_in(report, "file"));
  page.facts.emplace_back("legality", !legal  ? "refused"
                                      : built ? "legal, built"
                                              : "legal, not built here");
  page.body += errors(whole);
  const std::string why_not = text_in(report, "no_timeline");
  page.body += section(
      "Copies and exchanges beside compute",
      text_in(report, "timeline") + (why_not.empty() ? "" : element("p", "note", why_not) + "\n"));
  if (!text_in(report, "text").empty())
    page.body += section("Description", element("pre", "", text_in(report, "text")) + "\n");
  page.body += counters(report);
  const std::string yaml = text_in(report, "scenario_text");
  page.body += section("Scenario", yaml.empty() ? "" : copyable(yaml));
  return html_page(page);
}

}  // namespace lockstep
