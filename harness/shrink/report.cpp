// The smallest scenario as a file that explains itself.
#include "harness/report/report.h"

#include <cstdio>
#include <sstream>

#include "harness/shrink/reason.h"
#include "harness/shrink/shrink.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

// One line of printable text, without the folders of a build tree.
std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line, word;
  while (words >> word) {
    if (word.size() > 1 && word[0] == '/') word = word.substr(word.rfind('/') + 1);
    line += (line.empty() ? "" : " ") + word;
  }
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return line;
}

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

void comment(std::ostringstream& out, const std::string& text) {
  out << "# " << one_line(text) << "\n";
}

void write_failure(std::ostringstream& out, const Shrunk& shrunk) {
  const CaseResult& result = shrunk.result;
  comment(out, std::string(to_text(result.verdict)) + " by " + to_text(result.judge) + ": " +
                   result.reason);
  if (result.first_difference) {
    for (const auto& [name, value] : difference_rows(*result.first_difference))
      comment(out, name + " " + value);
  }
  comment(out, "replay: " + result.replay);
  if (shrunk.failed < shrunk.of) {
    comment(out, "racy: " + std::to_string(shrunk.failed) + " of " + std::to_string(shrunk.of) +
                     " schedules fail; checker.schedule.seed is one that does");
  }
}

void write_freedoms(std::ostringstream& out, const Shrunk& shrunk) {
  std::ostringstream free, bound, mixed;
  for (const Freedom& freedom : shrunk.freedoms) {
    if (freedom.other.empty()) {
      free << "#   " << freedom.key << ": " << joined(freedom.fails) << "\n";
    } else if (freedom.fails.empty()) {
      bound << "#   " << freedom.key << ": " << joined(freedom.other) << "\n";
    } else {
      mixed << "#   " << freedom.key << ": " << joined(freedom.fails) << "; not "
            << joined(freedom.other) << "\n";
    }
  }
  if (!free.str().empty()) out << "# Varies freely, fails for any of\n" << free.str();
  if (!mixed.str().empty()) out << "# Fails for some\n" << mixed.str();
  if (!bound.str().empty())
    out << "# Matters, no longer fails for this reason with\n" << bound.str();
}

}  // namespace

std::string shrunk_description(const CaseResult& result) {
  std::string text = std::string(to_text(result.verdict)) + " by " + to_text(result.judge);
  if (result.first_difference) {
    text += ": " + tensor_kind(result.first_difference->tensor) + " differed";
    if (!result.first_difference->op.empty()) text += ", written by " + result.first_difference->op;
  } else {
    text += ": " + one_line(result.reason);
  }
  return text.substr(0, 400);
}

std::string shrunk_yaml(const Shrunk& shrunk) {
  std::ostringstream out;
  char effort[160];
  std::snprintf(effort, sizeof effort, "shrunk from %s in %lld runs and %.1f s%s",
                shrunk.first.name.c_str(), static_cast<long long>(shrunk.runs), shrunk.seconds,
                shrunk.finished      ? ""
                : shrunk.interrupted ? "; interrupted, it may get smaller yet"
                                     : "; the budget ended first, it may get smaller yet");
  comment(out, effort);
  write_failure(out, shrunk);
  write_freedoms(out, shrunk);
  return out.str() + to_yaml(shrunk.scenario);
}

}  // namespace lockstep
