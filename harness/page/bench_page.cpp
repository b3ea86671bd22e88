#include "harness/page/bench_page.h"

#include <map>

#include "harness/page/chart.h"
#include "harness/page/html_text.h"
#include "harness/page/page.h"
#include "harness/page/rows_table.h"

namespace lockstep {
namespace {

namespace json = boost::json;

constexpr const char* kStyles[] = {"a", "b", "c", "d"};

std::string section(const std::string& title, const std::string& body) {
  if (body.empty()) return "";
  return "<section>\n" + element("h2", "", title) + "\n" + body + "</section>\n";
}

// `value` over `x`, a curve for each name.
std::string curves(const json::array& rows, const char* x, const char* value, double scale,
                   const std::string& x_name, const std::string& y_name, auto name_of) {
  std::map<std::string, ChartCurve> by_name;
  for (const json::value& one : rows) {
    const json::object& row = one.as_object();
    if (!row.contains(x) || !row.contains(value)) continue;
    const std::string name = name_of(row);
    const auto entry = by_name.try_emplace(name, ChartCurve{kStyles[by_name.size() % 4], name, {}});
    entry.first->second.points.emplace_back(row.at(x).to_number<double>(),
                                            scale * row.at(value).to_number<double>());
  }
  Chart out{
      .what = y_name + " over " + x_name, .x_name = x_name, .y_name = y_name, .column_name = ""};
  for (const auto& [name, curve] : by_name) out.curves.push_back(curve);
  return chart(out);
}

const std::vector<RowColumn>& step_columns() {
  static const std::vector<RowColumn> list{{"mode", "mode", 0},
                                           {"median_seconds", "ms a step", 1e3, 3, true},
                                           {"fastest_seconds", "fastest", 1e3},
                                           {"host_seconds", "host, ms", 1e3},
                                           {"calls", "calls", 0},
                                           {"ops", "ops", 0},
                                           {"tokens_per_second", "tokens/s", 1, 0},
                                           {"peak_bytes", "memory, MB", 1e-6, 1},
                                           {"not_run", "", 0}};
  return list;
}

std::string offload_section(const json::value& report) {
  const json::array& rows = rows_at(report, "/offload/rows");
  const auto mode = [](const json::object& row) {
    const json::value* captured = row.if_contains("captured");
    const bool in_graphs = captured != nullptr && captured->is_bool() && captured->get_bool();
    return text_in(row, "mode") + (in_graphs ? ", copies captured" : "");
  };
  return curves(rows, "fraction", "median_seconds", 1e3, "offloaded fraction", "ms a step", mode) +
         curves(rows, "fraction", "peak_bytes", 1e-6, "offloaded fraction", "device memory, MB",
                mode) +
         rows_table(rows, {{"mode", "mode", 0},
                           {"fraction", "fraction", 1, 2},
                           {"median_seconds", "ms a step", 1e3, 3, true},
                           {"plain_seconds", "without, ms", 1e3},
                           {"peak_bytes", "memory, MB", 1e-6, 1},
                           {"saved_bytes_planned", "saved, MB", 1e-6, 1},
                           {"bytes_per_second_each_way", "GB/s each way", 1e-9, 2},
                           {"hidden_by_the_model", "hidden, %", 100, 0},
                           {"fits_under_compute", "fits", 0},
                           {"not_run", "", 0}});
}

std::string packing_section(const json::value& report) {
  json::array points;
  for (const json::value& row : rows_at(report, "/packing/rows")) {
    const std::string name =
        text_in(row.as_object(), "name") + ", " + text_in(row.as_object(), "mode");
    for (const json::value& time : rows_at(row, "/times")) {
      json::object point = time.as_object();
      point["name"] = name;
      points.push_back(std::move(point));
    }
  }
  return rows_table(
      points,
      {{"name", "op or step", 0}, {"capacity", "capacity", 0}, {"seconds", "us", 1e6, 1, true}});
}

}  // namespace

std::string bench_page(const json::object& unread) {
  const json::value report = unread;
  Page page{.title = "lockstep: bench", .kind = "measured times", .facts = facts_of(unread)};
  page.facts.emplace_back("scenario", text_in(unread, "scenario"));
  if (unread.contains("interrupted"))
    page.body += "<p class=\"interrupted\">Interrupted: what was measured until then.</p>\n";
  const json::value* device = unread.if_contains("device");
  if (device != nullptr && device->is_object() && text_in(device->get_object(), "kind") == "sim") {
    page.body +=
        "<p class=\"interrupted\">Times of the simulated device: they say nothing of a GPU.</p>\n";
  }
  page.body += section("Step", rows_table(rows_at(report, "/steps"), step_columns()));
  page.body += section("Beside PyTorch", rows_table(rows_at(report, "/peer/rows"),
                                                    {{"mode", "mode", 0},
                                                     {"median_seconds", "ms a step", 1e3, 3, true},
                                                     {"fastest_seconds", "fastest, ms", 1e3},
                                                     {"bytes", "memory, MB", 1e-6, 1},
                                                     {"not_run", "", 0}}));
  page.body += section("Offloading", offload_section(report));
  const auto memory = [](const json::object& row) { return text_in(row, "memory"); };
  const json::array& in_flight = rows_at(report, "/memory/rows");
  std::vector<RowColumn> columns{{"memory", "memory", 0}, {"in_flight", "in flight", 0}};
  columns.insert(columns.end(), step_columns().begin(), step_columns().end());
  page.body +=
      section("Memory of graphs", curves(in_flight, "in_flight", "peak_bytes", 1e-6,
                                         "microbatches in flight", "device memory, MB", memory) +
                                      rows_table(in_flight, columns));
  page.body += section("Capacities", packing_section(report));
  page.body += section("Sharding", rows_table(rows_at(report, "/fsdp/rows"),
                                              {{"mode", "mode", 0},
                                               {"step_seconds", "ms a step", 1e3, 3, true},
                                               {"compute_seconds", "compute, ms", 1e3},
                                               {"communication_seconds", "exchanges, ms", 1e3},
                                               {"exposed_seconds", "not hidden, ms", 1e3},
                                               {"not_run", "", 0}}));
  page.body += section("Pipeline", rows_table(rows_at(report, "/pipeline/rows"),
                                              {{"mode", "mode", 0},
                                               {"step_seconds", "ms a step", 1e3, 3, true},
                                               {"bubble", "bubble, %", 100, 1},
                                               {"ideal_bubble", "ideal, %", 100, 1},
                                               {"exposed_seconds", "transfers not hidden, ms", 1e3},
                                               {"not_run", "", 0}}));
  page.body += section("Experts", rows_table(rows_at(report, "/experts/rows"),
                                             {{"mode", "mode", 0},
                                              {"step_seconds", "ms a step", 1e3, 3, true},
                                              {"exposed_seconds", "not hidden, ms", 1e3},
                                              {"exposed_share", "not hidden, %", 100, 1},
                                              {"of_library", "of bare calls, %", 100, 0},
                                              {"not_run", "", 0}}));
  page.body +=
      section("Kernels", rows_table(rows_at(report, "/kernels"),
                                    {{"op", "op", 0},
                                     {"times", "times", 0},
                                     {"seconds", "us", 1e6, 1, true},
                                     {"ceiling_seconds", "ceiling, us", 1e6, 1},
                                     {"copy_seconds", "a copy, us", 1e6, 1},
                                     {"own_kernel_seconds", "our own product, us", 1e6, 1}}));
  page.body += folded("all numbers", copyable(json::serialize(report)));
  return html_page(page);
}

}  // namespace lockstep
