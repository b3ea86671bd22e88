#include "scenarios/syntax/yaml_slip.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostQuoted = 40;

struct Line {
  int number = 0;
  std::string_view indent, text;  // The text without comments and blanks at its end.
  bool has_text() const { return !text.empty(); }
};

// Calls `see` for each character that is neither quoted nor commented, with its place.
template <class See>
void walk(std::string_view text, See see) {
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool first = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t';
    if (quote != '\0') {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = '\0';
    } else if ((c == '"' || c == '\'') && (i == 0 || std::string(" [{,:").find(text[i - 1]) < 5)) {
      quote = c;
    } else if (c == '#' && first) {
      return;
    } else {
      see(c, i);
    }
  }
}

std::vector<Line> lines_of(std::string_view bytes) {
  std::vector<Line> lines;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view whole = bytes.substr(at, end - at);
    const std::size_t begin = std::min(whole.find_first_not_of(" \t"), whole.size());
    std::string_view text = whole.substr(begin);
    std::size_t comment = text.size();
    for (std::size_t i = text.find('#'); i != std::string_view::npos; i = text.find('#', i + 1)) {
      if (i > 0 && text[i - 1] != ' ' && text[i - 1] != '\t') continue;
      comment = i;
      break;
    }
    text = text.substr(0, comment);
    text = text.substr(0, text.find_last_not_of(" \t\r") + 1);
    lines.push_back({static_cast<int>(lines.size()) + 1, whole.substr(0, begin), text});
    at = end + 1;
  }
  return lines;
}

std::string named(const Line& line) {
  const bool cut = line.text.size() > kMostQuoted;
  return "line " + std::to_string(line.number) + " `" + shown(line.text.substr(0, kMostQuoted)) +
         (cut ? "..." : "") + "`";
}

// Colons that part a key from its value.
int colons(std::string_view text) {
  int count = 0;
  walk(text, [&](char c, std::size_t i) {
    count += c == ':' && (i + 1 == text.size() || text[i + 1] == ' ');
  });
  return count;
}

std::string open_bracket(const std::vector<Line>& lines) {
  struct Open {
    char bracket;
    int line;
  };
  std::vector<Open> open;
  std::string wrong;
  for (const Line& line : lines) {
    walk(line.text, [&](char c, std::size_t) {
      if (c == '{' || c == '[') open.push_back({c, line.number});
      if ((c != '}' && c != ']') || !wrong.empty()) return;
      const char opens = c == '}' ? '{' : '[';
      if (open.empty()) {
        wrong =
            "line " + std::to_string(line.number) + " closes with " + c + " what nothing opened";
      } else if (open.back().bracket != opens) {
        wrong = std::string("the ") + open.back().bracket + " of line " +
                std::to_string(open.back().line) + " is closed by the " + c + " of line " +
                std::to_string(line.number);
      } else {
        open.pop_back();
      }
    });
    if (!wrong.empty()) return wrong;
  }
  if (open.empty()) return "";
  return std::string("the ") + open.back().bracket + " of line " +
         std::to_string(open.back().line) + " is not closed";
}

}  // namespace

std::string yaml_slip(const std::string& bytes, int line) {
  const std::vector<Line> lines = lines_of(bytes);
  const Line *here = nullptr, *before = nullptr;
  std::vector<std::size_t> indents;  // By the mappings around `before`, and its own.
  for (const Line& one : lines) {
    if (one.number > line) break;
    if (!one.has_text()) continue;
    if (one.indent.find('\t') != std::string_view::npos)
      return "a tab indents line " + std::to_string(one.number) + ", and YAML wants spaces";
    if (one.number < line) {
      before = &one;
      while (!indents.empty() && indents.back() >= one.indent.size()) indents.pop_back();
      indents.push_back(one.indent.size());
    } else {
      here = &one;
    }
  }
  if (std::string bracket = open_bracket(lines); !bracket.empty()) return bracket;
  if (here == nullptr) return "";
  if (colons(here->text) > 1 && here->text.find_first_of("{[") == std::string_view::npos)
    return named(*here) + " has two colons: put the value in quotes";
  if (before == nullptr) return "";
  if (colons(before->text) == 0 && before->text.find_first_of("-{}[]\"'|>") != 0) {
    const bool glued = before->text.find(':') != std::string_view::npos;
    return named(*before) + (glued ? " has no blank after its colon" : " has no colon");
  }
  const std::size_t deep = here->indent.size();
  if (deep > before->indent.size() && before->text.back() != ':') {
    return "line " + std::to_string(line) + " is indented more deeply than line " +
           std::to_string(before->number) + ", which has its value already";
  }
  if (deep < before->indent.size() &&
      std::find(indents.begin(), indents.end(), deep) == indents.end()) {
    return "line " + std::to_string(line) + " is indented by " + std::to_string(deep) +
           ", and no section above it is";
  }
  return "";
}

}  // namespace lockstep
