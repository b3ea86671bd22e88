#include "harness/page/html_report.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "harness/base/shell_word.h"
#include "harness/expect/blind_spots.h"
#include "harness/page/difference_section.h"
#include "harness/page/hazard_picture.h"
#include "harness/page/html_coverage.h"
#include "harness/page/html_text.h"
#include "harness/page/pack_picture.h"
#include "harness/page/page.h"
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

std::string counts_of(const json::object& run) {
  const json::object& counts = run.at("summary").as_object();
  std::string out;
  if (run.contains("interrupted"))
    out += "<p class=\"interrupted\">Interrupted: what was done until then.</p>\n";
  if (run.contains("stopped_after_failure"))
    out += "<p class=\"interrupted\">Stopped after a failure: some cases were not run.</p>\n";
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
  return out + "</ul>\n";
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
    return pack_picture(scenario.data,
                        of_rank(step, where.rank % scenario.parallel.data, scenario.parallel.data),
                        where);
  } catch (const std::exception& error) {
    return "<p class=\"note\">The packs are not drawn: " + html(error.what()) + "</p>\n";
  }
}

std::string difference(const CaseResult& result) {
  std::string rows;
  for (const auto& [name, value] : difference_rows(*result.first_difference)) {
    rows += "<tr><th>" + html(name) + "</th><td>" + html(value) + "</td></tr>\n";
  }
  if (result.wrong_op) {
    for (const auto& [name, value] : wrong_op_rows(*result.wrong_op))
      rows += "<tr><th>" + html(name) + "</th><td>" + html(value) + "</td></tr>\n";
  }
  return "<table class=\"place\">\n" + rows + "</table>\n" + picture(result);
}

// The hazard told first is the reason; the others have their own sentence.
std::string hazards(const CaseResult& one) {
  std::string first, others;
  for (std::size_t i = 0; i < one.hazards.size(); ++i) {
    const std::string picture = hazard_picture(one.hazards[i]);
    (i == 0 ? first : others) +=
        (i == 0 ? "" : element("p", "reason", one.hazards[i].text) + "\n") + picture;
  }
  if (others.empty()) return first;
  const std::size_t count = one.hazards.size() - 1;
  return first +
         folded(std::to_string(count) + (count == 1 ? " other hazard" : " other hazards"), others);
}

// What fuzz knows of the class of a failure.
std::string class_of(const CaseResult& one, const json::object* found,
                     const json::object* campaign) {
  if (found == nullptr) return "";
  const std::string first = text_in(*found, "first_case"), cases = text_in(*found, "cases");
  const bool drawn = first != "-1";
  std::string text = text_in(*found, "kind") + ": " + text_in(*found, "failed") + " of " +
                     text_in(*found, "runs") + " further runs failed; " + cases +
                     (cases == "1" ? " case" : " cases") + " of this class, first in " +
                     (drawn ? "case " + first : std::string("the corpus")) + ".";
  if (!text_in(*found, "file").empty()) text += " Kept as " + text_in(*found, "file") + ".";
  std::string out = element("p", "note", text) + "\n";
  if (drawn && campaign != nullptr) {
    const std::size_t device = one.replay.find(" --device ");
    const std::string with = text_in(*campaign, "with");
    out += copyable("lockstep fuzz --seed " + text_in(*campaign, "seed") + " --case " + first +
                    " --profile " + text_in(*campaign, "profile") +
                    (with.empty() ? "" : " --with " + with) +
                    (device == std::string::npos ? "" : one.replay.substr(device)));
  }
  return out;
}

std::string with(std::string line, const std::string& what, const std::string& instead) {
  const std::size_t at = line.find(what);
  return at == std::string::npos ? "" : line.replace(at, what.size(), instead);
}

// Command lines, the shortest first.
std::string next_steps(const CaseResult& one) {
  if (one.replay.empty()) return "";
  std::string out;
  if (!one.file.empty() && one.file != "-" && !one.token.empty()) {
    const std::string short_form = with(one.replay, one.token, shell_word(one.file));
    if (!short_form.empty())
      out += "<h4>Run it again, in each precision of the file</h4>\n" + copyable(short_form);
  }
  const std::string shrink = with(one.replay, "lockstep replay ", "lockstep shrink ");
  if (!shrink.empty()) {
    out += "<h4>Make it smaller</h4>\n" + copyable(shrink + " -o small.yaml");
    if (one.replay.find("--device sim") != std::string::npos)
      out += "<h4>Look at its order</h4>\n" + copyable(one.replay + " --trace trace.json");
  }
  return folded("next steps", out);
}

std::string scenario_text(const CaseResult& one) {
  if (one.token.empty()) return "";
  try {
    return to_yaml(read_token(one.token, one.data_from));
  } catch (const std::exception&) {
    return "";  // Another build's schema: its replay line stays.
  }
}

std::string counters(const CaseResult& one) {
  std::string out;
  for (const auto& [counter, value] : one.counters) {
    out += "<div>" + element("dt", "", to_text(counter)) +
           element("dd", "", std::to_string(value)) + "</div>";
  }
  return out.empty() ? "" : "<dl>" + out + "</dl>";
}

// File, scenario and counters, behind one word.
std::string about(const CaseResult& one, const std::string& title) {
  std::string out;
  if (!one.file.empty()) out += element("p", "note", one.file) + "\n";
  if (!one.schedules.empty()) out += element("p", "note", one.schedules) + "\n";
  for (const std::string& spot : one.blind) out += element("p", "note", blind_line(spot)) + "\n";
  out += counters(one);
  if (const std::string text = scenario_text(one); !text.empty()) out += copyable(text);
  return out.empty() ? "" : folded(title, out);
}

std::string failure(const CaseResult& one, std::size_t number, const json::object* found,
                    const json::object* campaign) {
  const std::string verdict = to_text(one.verdict);
  std::string out = "<article id=\"failure-" + std::to_string(number) + "\" data-verdict=\"" +
                    verdict + "\">\n<h3>" + html(one.name) + " <small>" + html(one.numerics) +
                    "</small> <span class=\"badge " + verdict + "\">" + verdict + "</span> by " +
                    html(to_text(one.judge)) + "</h3>\n";
  out += element("p", "reason", one.reason) + "\n" + class_of(one, found, campaign);
  if (!one.file.empty()) out += element("p", "note", "file: " + one.file) + "\n";
  if (one.first_difference) out += difference(one);
  out += hazards(one);
  if (!one.replay.empty()) out += "<h4>Replay</h4>\n" + copyable(one.replay);
  return out + next_steps(one) + about(one, "scenario and counters") + "</article>\n";
}

// The reason of a failure stands in its block alone.
std::string result_row(const CaseResult& one, std::size_t failure_number) {
  const std::string verdict = to_text(one.verdict);
  std::string name = html(one.name);
  if (failure_number > 0)
    name = "<a href=\"#failure-" + std::to_string(failure_number) + "\">" + name + "</a>";
  std::string out = "<tr data-verdict=\"" + verdict + "\"><td><span class=\"badge " + verdict +
                    "\">" + verdict + "</span></td><td>" + name + "</td>" +
                    element("td", "", one.numerics);
  for (const Counter key :
       {Counter::graphs_captured, Counter::graph_replays, Counter::eager_fallbacks, Counter::ops}) {
    out += element("td", "n", counter(one, key));
  }
  out += element("td", "n", seconds_text(one.seconds)) + "<td>";
  if (failure_number > 0) return out + "by " + html(to_text(one.judge)) + "</td></tr>\n";
  if (!one.reason.empty()) out += element("p", "reason", one.reason);
  return out + about(one, "more") + "</td></tr>\n";
}

std::string all_results(const std::vector<CaseResult>& results) {
  std::string out =
      "<section>\n<h2>Results</h2>\n<div class=\"wide\"><table "
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
  out += "</tbody>\n</table></div>\n";
  if (held > kMostHeld)
    out += "<p class=\"note\">And " + std::to_string(held - kMostHeld) +
           " more without a failure.</p>\n";
  return out + "</section>\n";
}

// The n-th class of a campaign belongs to its n-th result.
const json::object* class_number(const json::object& run, std::size_t number) {
  const json::value* classes = run.if_contains("classes");
  if (classes == nullptr || !classes->is_array()) return nullptr;
  const json::array& list = classes->get_array();
  return number < list.size() ? list[number].if_object() : nullptr;
}

std::string pack_legend() {
  const auto swatch = [](const char* style, const char* text) {
    return "<li><span class=\"swatch " + std::string(style) + "\"></span>" + html(text) + "</li>\n";
  };
  return "<ul class=\"legend\">\n" + swatch("even", "a document, and") +
         swatch("odd", "the next one") + swatch("marked", "the one that differs") +
         swatch("gap", "gaps, and rows of no document") +
         swatch("empty", "a document without tokens") + "</ul>\n";
}

std::string all_failures(const json::object& run, const std::vector<CaseResult>& results) {
  std::string out;
  bool packs = false, hazard = false;
  std::size_t number = 0;
  const json::value* campaign = run.if_contains("campaign");
  for (std::size_t i = 0; i < results.size(); ++i) {
    const CaseResult& one = results[i];
    if (!fails(one) || ++number > kMostFailures) continue;
    packs |= one.first_difference.has_value();
    hazard |= !one.hazards.empty();
    out += failure(one, number, class_number(run, i), campaign ? campaign->if_object() : nullptr);
  }
  if (number > kMostFailures) {
    out += "<p class=\"note\">" + std::to_string(number - kMostFailures) +
           " more failures are in the table alone.</p>\n";
  }
  if (out.empty()) return "";
  return "<section>\n<h2>Failures</h2>\n" + (packs ? pack_legend() : "") +
         (hazard ? hazard_legend() : "") + out + "</section>\n";
}

// Hidden until the script shows it.
std::string filter(const std::vector<CaseResult>& results) {
  if (results.size() < 2) return "";
  std::string out =
      "<div class=\"filter\" hidden>\n<label>Search <input type=\"search\" placeholder=\"name, "
      "judge, tensor, key of the scenario\"></label>\n";
  for (const Verdict verdict :
       {Verdict::holds, Verdict::violated, Verdict::broken, Verdict::gave_up, Verdict::skipped}) {
    if (count_of(results, verdict) == 0) continue;
    const std::string text = to_text(verdict);
    out += "<label><input type=\"checkbox\" checked value=\"" + text + "\"> " + text + "</label>\n";
  }
  return out + "<output></output>\n</div>\n";
}

// A campaign keeps what failed; of what held it has numbers alone.
std::string results_part(const json::object& run, const std::vector<CaseResult>& results) {
  if (!run.contains("campaign")) return all_results(results);
  if (results.empty()) return "<section><p>Every random scenario held.</p></section>\n";
  return "";
}

}  // namespace

std::string html_report(const json::object& run) {
  const std::vector<CaseResult> results = results_of(run);
  const std::string failures = all_failures(run, results);
  Page page{.title = std::string("lockstep: ") + (failures.empty() ? "held" : "failures"),
            .kind = "engine against oracle",
            .failed = !failures.empty(),
            .facts = facts_of(run),
            .counts = counts_of(run)};
  if (const json::value* campaign = run.if_contains("campaign");
      campaign && campaign->is_object()) {
    for (const char* key : {"seed", "profile", "shard", "corpus", "log"})
      page.facts.emplace_back(key, text_in(campaign->get_object(), key));
  }
  if (const std::string uncaught = text_in(run, "uncaught"); !uncaught.empty())
    page.body += "<section><p class=\"note\">" + html(uncaught) + "</p></section>\n";
  if (const json::value* other = run.if_contains("against"); other && other->is_object())
    page.body += difference_section(other->get_object());
  page.body += filter(results) + failures + results_part(run, results);
  if (const json::value* drawn = run.if_contains("distribution"))
    page.body += coverage_section(*drawn);
  return html_page(page);
}

}  // namespace lockstep
