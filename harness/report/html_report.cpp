#include "harness/report/html_report.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "harness/report/html_coverage.h"
#include "harness/report/html_style.h"
#include "harness/report/html_text.h"
#include "harness/report/pack_picture.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "kernels/core/at.h"
#include "scenarios/documents/documents.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

namespace json = boost::json;

// Rows of what held; the page of a long campaign stays readable.
constexpr std::size_t kMostHeld = 2000;
constexpr std::size_t kMostFailures = 200;  // With a block of their own.

std::string counter(const CaseResult& result, Counter name) {
  const auto found = result.counters.find(name);
  return found == result.counters.end() ? "" : std::to_string(found->second);
}

// Results of a run carry no device of their own: it is the run's.
std::vector<CaseResult> results_of(const json::object& run) {
  std::vector<CaseResult> list;
  for (const json::value& value : run.at("results").as_array()) {
    json::object whole = value.as_object();
    if (!whole.contains("device")) whole["device"] = run.at("device");
    list.push_back(result_from_json(whole));
  }
  return list;
}

std::string text_in(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? json::value_to<std::string>(*value) : json::serialize(*value);
}

std::string summary(const json::object& run, bool all_held) {
  const json::object& counts = run.at("summary").as_object();
  const json::object& device = run.at("device").as_object();
  std::string out = "<header class=\"" + std::string(all_held ? "held" : "failed") + "\">\n";
  out += "<h1>lockstep <small>" + html(text_in(run, "version")) + " (" +
         html(text_in(run, "revision")) + ")</small></h1>\n";
  out +=
      "<p class=\"device\">" + html(text_in(device, "kind")) + ": " + html(text_in(device, "name"));
  for (const char* key : {"driver", "cuda", "nccl", "cudnn", "cublas"}) {
    const std::string version = text_in(device, key);
    if (!version.empty()) out += ", " + std::string(key) + " " + html(version);
  }
  out += "</p>\n";
  if (run.contains("interrupted"))
    out += "<p class=\"interrupted\">Interrupted: what was done until then.</p>\n";
  out += "<ul class=\"counts\">\n";
  for (const auto& [name, value] : counts) {
    if (name == "seconds" || (value.is_bool() && !value.get_bool())) continue;
    const bool none = value.is_int64() && value.get_int64() == 0;
    std::string words(name);
    std::replace(words.begin(), words.end(), '_', ' ');
    out += "<li class=\"" + html(std::string(name)) + (none ? " none" : "") + "\">" +
           (value.is_bool() ? "" : "<b>" + html(json::serialize(value)) + "</b> ") + html(words) +
           "</li>\n";
  }
  if (counts.contains("seconds")) {
    out +=
        "<li><b>" + seconds_text(counts.at("seconds").to_number<double>()) + "</b> seconds</li>\n";
  }
  return out + "</ul>\n</header>\n";
}

// The microbatches of one rank, which numbers its own.
StepData of_rank(StepData step, std::int64_t rank, std::int64_t ranks) {
  StepData own;
  for (std::int64_t g = std::max<std::int64_t>(rank, 0); g < std::ssize(step.microbatches);
       g += ranks) {
    own.microbatches.push_back(std::move(at(step.microbatches, g)));
  }
  return own;
}

// The packs of the step that differs; nothing where it has no microbatch or its data are not here.
std::string picture(const CaseResult& result) {
  const FirstDifference& where = *result.first_difference;
  if (where.microbatch < 0 || where.step < 0 || result.token.empty()) return "";
  try {
    const Scenario scenario = read_token(result.token, result.data_from);
    const auto source = open_data(scenario);
    const StepData step = result.judge == JudgeKind::evaluation ? source->evaluation(where.step)
                                                                : source->training(where.step);
    return pack_picture(scenario.data, of_rank(step, where.rank, scenario.parallel.data), where);
  } catch (const std::exception& error) {
    return "<p class=\"note\">The packs are not drawn: " + html(error.what()) + "</p>\n";
  }
}

std::string difference(const CaseResult& result) {
  std::string rows;
  for (const auto& [name, value] : difference_rows(*result.first_difference)) {
    rows += "<tr><th>" + html(name) + "</th><td>" + html(value) + "</td></tr>\n";
  }
  return "<table class=\"place\">\n" + rows + "</table>\n" + picture(result);
}

std::string failure(const CaseResult& one, std::size_t number) {
  std::string out = "<article id=\"failure-" + std::to_string(number) + "\">\n<h3>" +
                    html(one.name) + " <small>" + html(one.numerics) +
                    "</small> <span class=\"badge " + to_text(one.verdict) + "\">" +
                    to_text(one.verdict) + "</span> by " + html(to_text(one.judge)) + "</h3>\n";
  out += element("p", "reason", one.reason) + "\n";
  if (one.first_difference) out += difference(one);
  if (!one.replay.empty()) out += "<h4>Replay</h4>\n" + element("pre", "replay", one.replay) + "\n";
  return out + "</article>\n";
}

std::string counters(const CaseResult& one) {
  if (one.counters.empty()) return "";
  std::string out = "<details><summary>counters</summary><dl>";
  for (const auto& [counter, value] : one.counters) {
    out += "<div>" + element("dt", "", to_text(counter)) +
           element("dd", "", std::to_string(value)) + "</div>";
  }
  return out + "</dl></details>";
}

std::string result_row(const CaseResult& one, std::size_t failure_number) {
  std::string name = html(one.name);
  if (failure_number > 0)
    name = "<a href=\"#failure-" + std::to_string(failure_number) + "\">" + name + "</a>";
  std::string out = "<tr><td><span class=\"badge " + std::string(to_text(one.verdict)) + "\">" +
                    to_text(one.verdict) + "</span></td><td>" + name + "</td>" +
                    element("td", "", one.numerics);
  for (const Counter key :
       {Counter::graphs_captured, Counter::graph_replays, Counter::eager_fallbacks, Counter::ops}) {
    out += element("td", "n", counter(one, key));
  }
  out += element("td", "n", seconds_text(one.seconds)) + "<td>";
  if (!one.reason.empty()) out += element("p", "reason", one.reason);
  return out + counters(one) + "</td></tr>\n";
}

std::string all_results(const std::vector<CaseResult>& results) {
  std::string out =
      "<section>\n<h2>Results</h2>\n<table "
      "class=\"results\">\n<thead><tr><th>verdict</th><th>scenario</th>"
      "<th>numerics</th><th class=\"n\">captured</th><th class=\"n\">replays</th><th "
      "class=\"n\">fallbacks</th>"
      "<th class=\"n\">ops</th><th class=\"n\">seconds</th><th></th></tr></thead>\n<tbody>\n";
  std::size_t failures = 0, held = 0;
  for (const CaseResult& one : results) {
    const bool failed = fails(one);
    failures += failed;
    held += !failed;
    if (!failed && held > kMostHeld) continue;
    out += result_row(one, failed && failures <= kMostFailures ? failures : 0);
  }
  out += "</tbody>\n</table>\n";
  if (held > kMostHeld)
    out += "<p class=\"note\">And " + std::to_string(held - kMostHeld) +
           " more without a failure.</p>\n";
  return out + "</section>\n";
}

std::string all_failures(const std::vector<CaseResult>& results) {
  std::string out;
  std::size_t number = 0;
  for (const CaseResult& one : results) {
    if (fails(one) && ++number <= kMostFailures) out += failure(one, number);
  }
  if (number > kMostFailures) {
    out += "<p class=\"note\">" + std::to_string(number - kMostFailures) +
           " more failures are in the table alone.</p>\n";
  }
  return out.empty() ? "" : "<section>\n<h2>Failures</h2>\n" + out + "</section>\n";
}

}  // namespace

std::string html_report(const json::object& run) {
  const std::vector<CaseResult> results = results_of(run);
  const std::string failures = all_failures(results);
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page +=
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>lockstep: ";
  page += failures.empty() ? "held" : "failures";
  page += "</title>\n<style>\n" + std::string(kHtmlStyle) + "</style>\n</head>\n<body>\n";
  page += summary(run, failures.empty()) + "<main>\n" + failures + all_results(results);
  if (const json::value* drawn = run.if_contains("distribution")) page += coverage_section(*drawn);
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace lockstep
