#include "harness/report/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string_view>

#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/report/result_json.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

std::string counter(const CaseResult& result, Counter name) {
  const auto found = result.counters.find(name);
  return found == result.counters.end() ? "-" : std::to_string(found->second);
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

// `text` if `number` is given.
std::string where_part(const char* text, std::int64_t number) {
  return number < 0 ? "" : std::string(", ") + text + " " + std::to_string(number);
}

// Only what XML 1.0 allows: no control but tab and newline, no U+FFFE and U+FFFF, and UTF-8.
std::string xml(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t bytes = utf8_length(text);
    const std::string_view whole = text.substr(0, std::max<std::size_t>(bytes, 1));
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t');
    if (control || bytes == 0 || whole == "\xEF\xBF\xBE" || whole == "\xEF\xBF\xBF") {
      safe += '?';
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += whole;
    }
    text.remove_prefix(whole.size());
  }
  return safe;
}

// "-0.02319336 0xbcbe0000", a widened bf16, as it is stored: "-0.02319336 0xbcbe (bf16)".
std::string as_bf16(const std::string& value) {
  return value.substr(0, value.size() - 4) + " (bf16)";
}

// Each blind spot once, with the cases that have it.
void write_blind_spots(std::ostringstream& out, const std::vector<CaseResult>& results) {
  std::map<std::string, std::vector<std::string>> cases;
  for (const CaseResult& one : results) {
    for (const std::string& spot : one.blind) {
      std::vector<std::string>& names = cases[spot];
      if (names.empty() || names.back() != one.name) names.push_back(one.name);
    }
  }
  for (const auto& [spot, names] : cases) {
    out << "blind: " << spot << " (";
    for (std::size_t i = 0; i < names.size(); ++i) out << (i > 0 ? ", " : "") << names[i];
    out << ")\n";
  }
}

// The properties of the whole run, for dashboards.
std::vector<std::pair<const char*, std::string>> run_properties(
    const std::vector<CaseResult>& results) {
  std::vector<std::pair<const char*, std::string>> list{{"version", version()},
                                                        {"revision", revision()}};
  for (const CaseResult& one : results) {
    if (one.device.kind.empty()) continue;
    list.emplace_back("device", one.device.kind);
    if (!one.device.name.empty()) list.emplace_back("device_name", one.device.name);
    break;
  }
  return list;
}

}  // namespace

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

std::string table(const std::vector<CaseResult>& results) {
  const std::vector<std::string> head{"name",    "numerics",  "verdict", "captured",
                                      "replays", "fallbacks", "seconds"};
  std::vector<std::vector<std::string>> rows{head};
  for (const CaseResult& one : results) {
    rows.push_back({one.name, one.numerics, to_text(one.verdict),
                    counter(one, Counter::graphs_captured), counter(one, Counter::graph_replays),
                    counter(one, Counter::eager_fallbacks), seconds_text(one.seconds)});
    if (one.verdict != Verdict::holds || !one.reason.empty()) rows.back().push_back(one.reason);
  }
  std::vector<std::size_t> width(head.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < head.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::ostringstream out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < head.size(); ++i)
      out << padded(row[i], width[i]) << (i + 1 < head.size() ? "  " : "");
    out << (row.size() > head.size() ? "  " + row.back() : "") << "\n";
  }
  write_blind_spots(out, results);
  out << count_of(results, Verdict::holds) << " held, " << count_of(results, Verdict::violated)
      << " violated, " << count_of(results, Verdict::broken) << " broken, "
      << count_of(results, Verdict::gave_up) << " gave up, " << count_of(results, Verdict::skipped)
      << " skipped\n";
  return out.str();
}

bool fails(const CaseResult& result) {
  return result.verdict != Verdict::holds && result.verdict != Verdict::skipped;
}

std::vector<std::pair<std::string, std::string>> difference_rows(const FirstDifference& where) {
  std::vector<std::pair<std::string, std::string>> rows{
      {"place", "step " + std::to_string(where.step) + where_part("rank", where.rank) +
                    where_part("microbatch", where.microbatch) + where_part("layer", where.layer)},
      {"tensor", where.tensor + (where.op.empty() ? "" : ", written by " + where.op)}};
  if (where.index >= 0) {
    rows.emplace_back(
        "element", "[" + std::to_string(where.row) + ", " + std::to_string(where.column) + "]" +
                       where_part("index", where.index) + where_part("document", where.document) +
                       where_part("position", where.position));
  }
  const bool bf16 = where.bf16 && where.stored_ulp;
  const auto value = [&](const std::string& text) { return bf16 ? as_bf16(text) : text; };
  if (where.got_from.empty()) {
    rows.emplace_back("engine", value(where.got));
    rows.emplace_back("oracle", value(where.want));
  } else {
    rows.emplace_back("one", value(where.got) + "  (" + where.got_from + ")");
    rows.emplace_back("other", value(where.want) + "  (" + where.want_from + ")");
  }
  if (bf16) {
    rows.emplace_back("distance", std::to_string(*where.stored_ulp) + " ulp of bf16");
  } else if (where.ulp) {
    rows.emplace_back("distance", std::to_string(*where.ulp) + " ulp");
  }
  return rows;
}

std::string failure_block(const CaseResult& result) {
  std::ostringstream out;
  out << "FAIL " << result.name << " (" << result.numerics << ") " << to_text(result.verdict)
      << " by " << result.judge << ": " << result.reason << "\n";
  if (result.first_difference) {
    for (const auto& [name, value] : difference_rows(*result.first_difference)) {
      out << "  " << padded(name, 10) << value << "\n";
    }
  }
  if (!result.replay.empty()) out << "  replay: " << result.replay << "\n";
  return shown_lines(out.str());
}

std::string junit(const std::vector<CaseResult>& results, bool interrupted) {
  double seconds = 0;
  for (const CaseResult& one : results) seconds += one.seconds;
  std::ostringstream out;
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"lockstep\" tests=\""
      << results.size() << "\" failures=\"" << count_of(results, Verdict::violated)
      << "\" errors=\"" << count_of(results, Verdict::broken) + count_of(results, Verdict::gave_up)
      << "\" skipped=\"" << count_of(results, Verdict::skipped) << "\" time=\""
      << seconds_text(seconds) << "\" timestamp=\"" << utc_now() << "\" hostname=\""
      << xml(host_name()) << "\">\n  <properties>\n";
  for (const auto& [name, value] : run_properties(results)) {
    out << "    <property name=\"" << name << "\" value=\"" << xml(value) << "\"/>\n";
  }
  if (interrupted) out << "    <property name=\"interrupted\" value=\"true\"/>\n";
  out << "  </properties>\n";
  for (const CaseResult& one : results) {
    out << "  <testcase classname=\"lockstep." << xml(one.numerics) << "\" name=\"" << xml(one.name)
        << (one.file.empty() ? "" : "\" file=\"" + xml(one.file)) << "\" time=\""
        << seconds_text(one.seconds) << "\"";
    if (one.verdict == Verdict::holds) {
      if (one.reason.empty()) {
        out << "/>\n";
      } else {
        out << ">\n    <system-out>" << xml(one.reason) << "</system-out>\n  </testcase>\n";
      }
      continue;
    }
    const char* kind = one.verdict == Verdict::violated  ? "failure"
                       : one.verdict == Verdict::skipped ? "skipped"
                                                         : "error";
    out << ">\n    <" << kind << " message=\"" << xml(to_text(one.judge) + ": " + one.reason)
        << "\"";
    if (one.verdict == Verdict::skipped) {
      out << "/>\n  </testcase>\n";
    } else {
      out << ">" << xml(failure_block(one)) << "</" << kind << ">\n  </testcase>\n";
    }
  }
  out << "</testsuite>\n";
  return out.str();
}

ExitStatus exit_status(const std::vector<CaseResult>& results) {
  const auto any = [&](auto holds) { return std::any_of(results.begin(), results.end(), holds); };
  if (any([](const CaseResult& one) { return one.verdict == Verdict::violated; }))
    return ExitStatus::violated;
  if (any([](const CaseResult& one) { return one.judge == JudgeKind::watchdog; }))
    return ExitStatus::hang;
  if (any([](const CaseResult& one) { return one.verdict == Verdict::broken; }))
    return ExitStatus::world_failed;
  if (any([](const CaseResult& one) { return one.verdict == Verdict::gave_up; }))
    return ExitStatus::gave_up;
  return ExitStatus::held;
}

}  // namespace lockstep
