#include "scenarios/syntax/scenario_error.h"

#include <algorithm>
#include <map>

#include "scenarios/syntax/schema_text.h"

namespace lockstep {

namespace {

// A value may be a list of a megabyte.
std::string cut(const std::string& text) {
  std::size_t end = std::min<std::size_t>(text.size(), 2000);
  while (end < text.size() && end > 0 && (text[end] & 0xC0) == 0x80) --end;  // No half characters.
  return end < text.size() ? text.substr(0, end) + "..." : text;
}

// The line with a mark below its column. Of a long line what is near the column.
std::string marked(const ScenarioError& error) {
  constexpr std::size_t kWidth = 100, kBefore = 60;
  const std::size_t column =
      std::min<std::size_t>(std::max(error.column, 1) - 1, error.source.size());
  std::size_t begin = column > kBefore ? column - kBefore : 0;
  if (error.source.size() <= kWidth) begin = 0;
  const auto is_middle = [&](std::size_t at) {
    return at < error.source.size() && (error.source[at] & 0xC0) == 0x80;
  };
  while (is_middle(begin)) ++begin;
  std::size_t end = std::min(begin + kWidth, error.source.size());
  while (is_middle(end)) ++end;
  const std::string before =
      (begin > 0 ? "..." : "") + shown(error.source.substr(begin, column - begin));
  const std::string behind = shown(error.source.substr(column, end - column));
  const std::string number = std::to_string(error.line);
  const auto wide =
      std::count_if(before.begin(), before.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
  return "  " + number + " | " + before + behind + (end < error.source.size() ? "..." : "") +
         "\n  " + std::string(number.size(), ' ') + " | " + std::string(wide, ' ') + "^";
}

}  // namespace

std::string ScenarioError::text() const {
  const auto place = [](int number) { return std::to_string(std::max(number, 1)) + ":"; };
  // An error in values that the command line changed belongs to no file.
  std::string out = file.empty() ? "" : shown(file) + ":" + place(line) + place(column) + " ";
  out += shown(key) + ": " + cut(what) + " [" + rule + "]";
  if (!why.empty()) out += ": " + why;
  if (!nearest.empty()) out += "; nearest legal: " + cut(nearest);
  return out;
}

std::string text_of(const std::vector<ScenarioError>& errors) {
  constexpr int kMost = 20;
  std::string lines;
  const auto add = [&](const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; };
  std::map<std::string, int> printed, left;  // By file.
  for (const ScenarioError& error : errors) {
    if (++printed[error.file] <= kMost) {
      add(error.text());
      if (!error.source.empty()) add(marked(error));
    } else {
      left[error.file] += error.stands_for;
    }
  }
  for (const auto& [file, count] : left) {
    add((file.empty() ? "" : shown(file) + ": ") + "and " + std::to_string(count) + " more error" +
        (count == 1 ? "" : "s"));
  }
  return lines;
}

// A file may be one line of a megabyte.
constexpr std::size_t kMostQuoted = 4096;

void quote_source(std::vector<ScenarioError>& errors, const std::string& text) {
  std::vector<std::size_t> begins{0};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') begins.push_back(i + 1);
  }
  for (ScenarioError& error : errors) {
    if (error.line < 1 || error.line > std::ssize(begins)) continue;
    const std::size_t begin = begins[error.line - 1];
    const std::size_t size = std::min(text.find('\n', begin), text.size()) - begin;
    if (size > kMostQuoted) continue;
    error.source = text.substr(begin, size);
    if (!error.source.empty() && error.source.back() == '\r') error.source.pop_back();
  }
}

}  // namespace lockstep
