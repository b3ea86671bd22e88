#include "harness/campaign/nights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/shell_word.h"
#include "harness/base/version.h"
#include "harness/report/run_difference.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string text(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? json::value_to<std::string>(*value) : "";
}

std::int64_t number(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_number() ? std::llround(value->to_number<double>()) : 0;
}

struct Report {
  std::string file, date;
  json::object run;
  std::string error = {};  // Says why the campaign ended before its first case; "" where it ran.
};

// Returns the error that the command wrote instead of results, on one line; "" where there are
// results.
std::string error_of(const json::object& run) {
  const json::value* error = run.if_contains("error");
  if (error == nullptr || !error->is_object() || run.contains("campaign")) return "";
  std::string words = text(error->as_object(), "text");
  std::ranges::replace(words, '\n', ' ');
  return "status " + std::to_string(number(error->as_object(), "status")) + ": " + words;
}

Report read(const std::string& file) {
  Report report{file, "", read_report(file, "--nights")};
  report.date = text(report.run, "date");
  report.error = error_of(report.run);
  if (!report.error.empty()) return report;
  for (const char* key : {"campaign", "summary", "distribution", "device"}) {
    const json::value* part = report.run.if_contains(key);
    if (part == nullptr || !part->is_object())
      throw RequestError("--nights " + file + ": is no report of a campaign: it has no " + key);
  }
  if (const json::value* classes = report.run.if_contains("classes");
      classes == nullptr || !classes->is_array())
    throw RequestError("--nights " + file + ": is no report of a campaign: it has no classes");
  return report;
}

struct History {
  std::size_t first = 0, last = 0;  // Indices of reports.
  std::map<std::size_t, std::int64_t> cases;
  std::string again;
};

std::string line_for(const Report& report, const json::object& found) {
  // A replay line holds the scenario and the options of the run, such as a planted fault.
  if (!text(found, "replay").empty()) return text(found, "replay");
  const json::object& campaign = report.run.at("campaign").as_object();
  if (number(found, "first_case") < 0) return text(found, "file");
  std::string line = "lockstep fuzz --seed " + text(campaign, "seed") + " --case " +
                     std::to_string(number(found, "first_case"));
  if (text(campaign, "profile") != "small") line += " --profile " + text(campaign, "profile");
  for (const char* option : {"with", "like"}) {
    if (!text(campaign, option).empty())
      line += std::string(" --") + option + " " + shell_word(text(campaign, option));
  }
  return line + " --device " + text(report.run.at("device").as_object(), "kind");
}

// A figure for each night: its cases, "+" for more than nine, "." for none, "-" where no case ran.
std::string strip(const History& history, const std::vector<Report>& nights) {
  std::string out;
  for (const Report& night : nights) out += night.error.empty() ? '.' : '-';
  for (const auto& [night, cases] : history.cases)
    at(out, night) = cases > 9 ? '+' : static_cast<char>('0' + cases);
  return out;
}

// The row of a campaign without results has all keys of the others.
json::object row_of_error(const Report& report) {
  json::object row{{"date", report.date}};
  for (const char* key : {"seed", "shard", "device"}) row[key] = "";
  row["revision"] = text(report.run, "revision");
  for (const char* key :
       {"cases", "held", "failures", "skipped", "seconds", "pairs_met", "new_classes"})
    row[key] = 0;
  row["file"] = report.file;
  row["error"] = report.error;
  return row;
}

json::object row_of(const Report& report, std::int64_t new_classes) {
  const json::object& summary = report.run.at("summary").as_object();
  const json::object& campaign = report.run.at("campaign").as_object();
  const json::object& met = report.run.at("distribution").as_object();
  return {{"date", report.date},
          {"seed", text(campaign, "seed")},
          {"shard", text(campaign, "shard")},
          {"revision", text(report.run, "revision")},
          {"device", text(report.run.at("device").as_object(), "kind")},
          {"cases", number(summary, "scenarios")},
          {"held", number(summary, "held")},
          {"failures",
           number(summary, "violated") + number(summary, "broken") + number(summary, "gave_up")},
          {"skipped", number(summary, "skipped")},
          {"seconds", number(summary, "seconds")},
          {"pairs_met", number(met, "pairs_met")},
          {"new_classes", new_classes},
          {"file", report.file}};
}

}  // namespace

json::object nights_of(const std::vector<std::string>& files) {
  std::vector<Report> reports;
  for (const std::string& file : files) reports.push_back(read(file));
  std::ranges::stable_sort(reports, {}, &Report::date);
  std::map<std::pair<std::string, std::string>, History> classes;  // By class and kind.
  json::array nights;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (!at(reports, i).error.empty()) {
      nights.push_back(row_of_error(at(reports, i)));
      continue;
    }
    std::int64_t new_classes = 0;
    for (const json::value& value : at(reports, i).run.at("classes").as_array()) {
      const json::object& found = value.as_object();
      const auto [place, is_new] = classes.try_emplace({text(found, "class"), text(found, "kind")});
      History& history = place->second;
      if (is_new) history.first = i;
      new_classes += is_new;
      history.last = i;
      history.cases[i] += number(found, "cases");
      history.again = line_for(at(reports, i), found);
    }
    nights.push_back(row_of(at(reports, i), new_classes));
  }
  std::vector<std::pair<std::size_t, json::object>> rows;
  for (const auto& [name, history] : classes) {
    rows.emplace_back(history.last, json::object{{"class", name.first},
                                                 {"kind", name.second},
                                                 {"first", at(reports, history.first).date},
                                                 {"last", at(reports, history.last).date},
                                                 {"nights", strip(history, reports)},
                                                 {"again", history.again}});
  }
  std::ranges::stable_sort(rows, std::greater(), &decltype(rows)::value_type::first);
  json::array list;
  for (auto& [last, row] : rows) list.push_back(std::move(row));
  return {{"tool", "lockstep"},
          {"version", version()},
          {"revision", revision()},
          {"nights", std::move(nights)},
          {"classes", std::move(list)}};
}

std::string nights_text(const json::object& nights) {
  std::ostringstream out;
  for (const json::value& value : nights.at("nights").as_array()) {
    const json::object& row = value.as_object();
    if (!text(row, "error").empty()) {
      out << text(row, "date") << "  " << text(row, "file") << ": ended before its first case, "
          << text(row, "error") << "\n";
      continue;
    }
    out << text(row, "date") << "  seed " << text(row, "seed") << ", shard " << text(row, "shard")
        << ": " << number(row, "cases") << " cases, " << number(row, "failures") << " failures, "
        << number(row, "new_classes") << " new classes (" << text(row, "revision") << ", "
        << text(row, "device") << ")\n";
  }
  for (const json::value& value : nights.at("classes").as_array()) {
    const json::object& row = value.as_object();
    out << text(row, "nights") << "  " << text(row, "class") << " (" << text(row, "kind")
        << "), last " << text(row, "last") << "\n  " << text(row, "again") << "\n";
  }
  return out.str();
}

}  // namespace lockstep
