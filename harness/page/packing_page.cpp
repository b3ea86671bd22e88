#include "harness/page/packing_page.h"

#include <algorithm>

#include "harness/page/chart.h"
#include "harness/page/html_text.h"
#include "harness/page/page.h"
#include "harness/page/rows_table.h"

namespace lockstep {
namespace {

namespace json = boost::json;

double number(const json::value& value) { return value.to_number<double>(); }

Chart frame_of(const json::object& report, const char* what) {
  Chart out{.what = what,
            .x_name = "documents in a pack, and capacity",
            .y_name = "",
            .column_name = "packs with as many documents"};
  double packs = 0, most = 0;
  for (const json::value& row : report.at("histogram").as_array()) packs += number(row.at(1));
  for (const json::value& row : report.at("histogram").as_array()) {
    const double documents = number(row.at(0));
    most = std::max(most, documents);
    out.columns.push_back(
        {documents, number(row.at(1)) / packs,
         json::serialize(row.at(1)) + " packs of " + json::serialize(row.at(0)) + " documents"});
  }
  out.log_x = most > 48;
  for (const json::value& bucket : report.at("proposed").at("max_packed_seqs").as_array())
    out.marks.push_back({number(bucket), json::serialize(bucket)});
  return out;
}

std::string cost_chart(const json::object& report) {
  Chart out = frame_of(report, "the time of a microbatch by capacity");
  out.y_name = "ms a microbatch";
  ChartCurve replay{"a", "a replay of a graph of this capacity", {}};
  ChartCurve expected{"b", "expected: replayed where it fits, else eager", {}};
  ChartCurve eager{"c", "eager", {}};
  for (const json::value& row : report.at("costs").at("replay").as_array())
    replay.points.emplace_back(number(row.at("capacity")), 1e3 * number(row.at("seconds")));
  const double alone = 1e3 * number(report.at("costs").at("eager_seconds"));
  for (const json::value& row : report.at("curve").as_array())
    expected.points.emplace_back(number(row.at("capacity")), 1e3 * number(row.at("seconds")));
  if (!replay.points.empty())
    eager.points = {{replay.points.front().first, alone}, {replay.points.back().first, alone}};
  out.curves = {replay, expected, eager};
  return chart(out);
}

std::string share_chart(const json::object& report) {
  Chart out = frame_of(report, "the share of packs that a capacity replays");
  out.y_name = "% of the packs";
  ChartCurve replayed{"d", "replayed with one graph of this capacity", {}};
  for (const json::value& row : report.at("curve").as_array())
    replayed.points.emplace_back(number(row.at("capacity")), 100 * number(row.at("replayed")));
  out.curves = {replayed};
  return chart(out);
}

}  // namespace

std::string packing_page(const json::object& report) {
  const json::value whole = report;
  const bool simulated = report.at("costs_are_simulated").as_bool();
  Page page{
      .title = "lockstep: packing", .kind = "capacities for packs", .facts = facts_of(report)};
  page.facts.emplace_back("model", text_in(report, "model"));
  page.facts.emplace_back("packs of", text_in(report, "file"));
  if (simulated) {
    page.body +=
        "<p class=\"interrupted\">Times of the simulated device: they say nothing of a GPU, and "
        "neither does the proposal (--device cuda measures).</p>\n";
  }
  page.body +=
      "<section>\n<h2>What a capacity costs</h2>\n" + cost_chart(report) +
      "</section>\n<section>\n<h2>What it covers</h2>\n" + share_chart(report) +
      rows_table(rows_at(whole, "/at"), {{"at", "at", 0},
                                         {"capacity", "capacity", 0},
                                         {"replayed", "replayed, %", 100, 2},
                                         {"seconds", "ms expected", 1e3, 3, true},
                                         {"padding_seconds", "ms for empty places", 1e3}}) +
      "</section>\n<section>\n<h2>Plans</h2>\n" +
      rows_table(rows_at(whole, "/plans"), {{"max_packed_seqs", "max_packed_seqs", 0},
                                            {"replayed", "replayed, %", 100, 2},
                                            {"graphs", "graphs", 0},
                                            {"seconds", "ms expected", 1e3, 3, true}});
  const std::string buckets = text_in(report.at("proposed").as_object(), "max_packed_seqs");
  page.body += element("h4", "", simulated ? "The least of these times" : "Proposed") + "\n" +
               copyable(buckets == "[]" ? "cuda_graph: {impl: none}"
                                        : "cuda_graph: {max_packed_seqs: " + buckets + "}") +
               "</section>\n";
  return html_page(page);
}

}  // namespace lockstep
