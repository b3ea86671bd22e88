#include "harness/report/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string_view>

#include "harness/base/clock.h"
#include "harness/base/markup.h"
#include "harness/base/shell_word.h"
#include "harness/base/version.h"
#include "harness/expect/blind_spots.h"
#include "harness/report/counted_call.h"
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
    } else if (const char* const entity = entity_of(c)) {
      safe += entity;
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
    out << blind_line(spot) << " (";
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

Colour colour_of(Verdict verdict) {
  return verdict == Verdict::holds      ? Colour::green
         : verdict == Verdict::violated ? Colour::red
                                        : Colour::yellow;
}

std::vector<std::size_t> widths_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < width.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  return width;
}

// Two blanks between columns.
std::size_t width_of(const std::vector<std::vector<std::string>>& rows) {
  std::size_t sum = 0;
  for (const std::size_t one : widths_of(rows)) sum += one + 2;
  return sum - 2;
}

// The reason of a failure as a row has it: the block has the whole.
std::string beginning(const std::string& reason) {
  constexpr std::size_t kMost = 60;
  if (reason.size() <= kMost) return reason;
  const std::size_t blank = reason.rfind(' ', kMost);
  return reason.substr(0, blank == std::string::npos ? kMost : blank) + " ...";
}

std::string with(std::string line, const std::string& what, const std::string& instead) {
  const std::size_t at = what.empty() ? std::string::npos : line.find(what);
  return at == std::string::npos ? "" : line.replace(at, what.size(), instead);
}

}  // namespace

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

std::string table(const std::vector<CaseResult>& results, const Terminal& terminal) {
  std::vector<std::string> head{"name",    "numerics",  "verdict", "captured",
                                "replays", "fallbacks", "seconds"};
  std::vector<std::vector<std::string>> rows;
  for (const CaseResult& one : results) {
    rows.push_back({one.name, one.numerics, to_text(one.verdict),
                    counter(one, Counter::graphs_captured), counter(one, Counter::graph_replays),
                    counter(one, Counter::eager_fallbacks), seconds_text(one.seconds)});
  }
  rows.insert(rows.begin(), head);
  if (terminal.width > 0 && width_of(rows) > terminal.width) {
    for (auto& row : rows) row.erase(row.begin() + 3, row.begin() + 6);
  }
  const std::vector<std::size_t> width = widths_of(rows);
  std::ostringstream out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const CaseResult* one = r == 0 ? nullptr : &results[r - 1];
    std::string line;
    for (std::size_t i = 0; i < width.size(); ++i) {
      const std::string text = padded(rows[r][i], width[i]);
      line += one && i == 2 ? coloured(text, colour_of(one->verdict), terminal) : text;
      if (i + 1 < width.size()) line += "  ";
    }
    const bool told = terminal.width > 0 && one && fails(*one);
    if (!one || told || (one->verdict == Verdict::holds && one->reason.empty())) {
      out << line << "\n";
    } else if (terminal.width > 0) {
      out << line << "\n" << fitted("    " + one->reason, terminal);
    } else {
      out << line << "  " << (fails(*one) ? beginning(one->reason) : one->reason) << "\n";
    }
  }
  std::ostringstream spots;
  write_blind_spots(spots, results);
  out << fitted(spots.str(), terminal);
  out << count_of(results, Verdict::holds) << " held, " << count_of(results, Verdict::violated)
      << " violated, " << count_of(results, Verdict::broken) << " broken, "
      << count_of(results, Verdict::gave_up) << " gave up, " << count_of(results, Verdict::skipped)
      << " skipped\n";
  return out.str();
}

bool fails(const CaseResult& result) {
  return result.verdict != Verdict::holds && result.verdict != Verdict::skipped;
}

// The op that writes a gradient or a loss of ours, by its name: these are sums, which no op stores
// alone. "" for other tensors, and for those of another engine.
static std::string writer_of(const FirstDifference& where) {
  static constexpr std::pair<std::string_view, const char*> kWriters[] = {
      {".experts.fc1.weight.gradient", "expert_weight_gradient"},
      {".experts.fc2.weight.gradient", "expert_weight_gradient"},
      {"router.weight.gradient", "router_weight_gradient"},
      {"embedding.weight.gradient", "embedding_backward"},
      {".conv.weight.gradient", "conv_backward"},
      {".conv.bias.gradient", "conv_backward"},
      {".dt_bias.gradient", "scan_backward"},
      {".a_log.gradient", "scan_backward"},
      {".d.gradient", "scan_backward"},
      {"gated_norm.gain.gradient", "gated_norm_backward"},
      {"norm.gain.gradient", "rms_norm_backward"},
      {".weight.gradient", "linear_weight_gradient"},
      {"aux_loss", "router_loss"},
      {"z_loss", "router_loss"},
      {"loss", "microbatch_loss"},
      {"norm", "gradient_norm"},
      {"clip", "gradient_norm"},
      {"learning_rate", "the host, for adamw"}};
  if (!where.got_from.empty()) return "";
  for (const auto& [name, op] : kWriters) {
    if (where.tensor.ends_with(name)) return op;
  }
  return "";
}

// ", written by adamw".
static std::string written_by(const FirstDifference& where) {
  const std::string writer = writer_of(where);
  if (where.op.empty() && writer.empty()) return "";
  const bool both = !where.op.empty() && !writer.empty();
  return ", written by " + writer + (both ? " and " : "") + where.op;
}

std::vector<std::pair<std::string, std::string>> difference_rows(const FirstDifference& where) {
  std::vector<std::pair<std::string, std::string>> rows{
      {"place", "step " + std::to_string(where.step) + where_part("rank", where.rank) +
                    where_part("microbatch", where.microbatch) + where_part("layer", where.layer)},
      {"tensor", where.tensor + written_by(where)}};
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

std::vector<std::pair<std::string, std::string>> wrong_op_rows(const WrongOp& wrong) {
  if (wrong.op.empty()) {
    std::vector<std::pair<std::string, std::string>> rows{
        {"first op",
         "none: each op that can be compared wrote the oracle's values, so look at the op that "
         "writes the tensor, at what follows the passes (accumulate, exchanges of ranks, "
         "gradient_norm, adamw), and at copies"}};
    for (const WrongOp::Input& input : wrong.inputs)
      rows.emplace_back("it holds", input.operand + " of " + input.writers);
    return rows;
  }
  const std::string place = wrong.op + where_part("layer", wrong.layer) +
                            where_part("microbatch", wrong.microbatch) + ", step " +
                            std::to_string(wrong.step) + where_part("rank", wrong.rank);
  if (wrong.operand.empty()) {
    std::vector<std::pair<std::string, std::string>> rows{
        {"left out", place + ": it ran less often than the oracle's"}};
    for (const WrongOp::Input& input : wrong.inputs)
      rows.emplace_back("it is of", "the " + input.writers + ", of which no op ran");
    return rows;
  }
  std::string reads;
  for (const WrongOp::Input& input : wrong.inputs) {
    reads += (reads.empty() ? "" : "; ") + input.operand +
             (input.writers.empty() ? " of no op" : " of " + input.writers);
  }
  return {{"first op", place + ": its `" + wrong.operand + "` is the first that is wrong"},
          {"it reads", reads}};
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
  const bool counts = result.judge == JudgeKind::vacuous || result.judge == JudgeKind::counters;
  const std::string call = counts ? counted_call(result.reason) : "";
  if (!call.empty()) out << "  " << padded("counts", 10) << call << "\n";
  if (result.wrong_op) {
    for (const auto& [name, value] : wrong_op_rows(*result.wrong_op))
      out << "  " << padded(name, 10) << value << "\n";
  }
  if (!result.replay.empty()) out << "  replay: " << result.replay << "\n";
  return shown_lines(out.str());
}

std::string failure_block(const CaseResult& result, const Terminal& terminal) {
  std::string block = fitted(failure_block(result), terminal);
  const std::string word = "FAIL";
  if (block.starts_with(word))
    block.replace(0, word.size(), coloured(word, colour_of(result.verdict), terminal));
  return block;
}

std::string next_commands(const CaseResult& result) {
  const std::string& again = result.replay;
  if (again.empty()) return "";
  std::string out;
  const bool has_file = !result.file.empty() && result.file != "-";
  const std::string by_file = has_file ? with(again, result.token, shell_word(result.file)) : "";
  const std::string& shorter = by_file.empty() ? again : by_file;
  if (!by_file.empty()) out += "  " + by_file + "\n";
  const std::string shrink = with(shorter, "lockstep replay ", "lockstep shrink ");
  // A counter and an expectation are of the file as it is: a smaller one would have others.
  const bool of_the_file =
      result.judge == JudgeKind::counters || result.judge == JudgeKind::expectation;
  if (!shrink.empty() && !of_the_file) out += "  " + shrink + " -o small.yaml\n";
  return shown_lines(out + "  " + shorter + " --html failure.html\n");
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
