#include "harness/megatron/shell_words.h"

#include <cctype>
#include <map>
#include <utility>

#include "harness/base/errors.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// After variables are replaced.
constexpr std::size_t kMostWords = 1 << 16;
constexpr std::size_t kLongestWord = 1 << 16;

// What a variable stands for: words, or the reason why nobody knows them here.
struct Variable {
  std::vector<std::string> words;
  std::string unknown;
};

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  std::vector<ShellCommand> read() {
    while (at_ < text_.size()) command();
    return std::move(commands_);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw RequestError(file_ + ":" + std::to_string(line) + ": " + what);
  }

  char here(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char take() {
    const char c = text_[at_++];
    line_ += c == '\n';
    return c;
  }

  // Blanks, comments and escaped ends of lines.
  void skip_blanks() {
    for (;; take()) {
      if (here() == '#') {
        while (at_ < text_.size() && here() != '\n') take();
        return;
      }
      if (here() == '\\' && here(1) == '\n') {
        take();
      } else if (here() == '\\' && here(1) == '\r' && here(2) == '\n') {
        take();
        take();
      } else if (here() != ' ' && here() != '\t' && here() != '\r') {
        return;
      }
    }
  }

  bool ends_command() const {
    return at_ >= text_.size() || std::string("\n;|&()<>").find(here()) != std::string::npos;
  }

  void command() {
    ShellCommand words;
    unknown_.clear();
    for (;;) {
      skip_blanks();
      if (ends_command()) break;
      if (words.empty() && assignment()) continue;
      const int line = line_;
      for (std::string& one : word()) {
        words.push_back({std::move(one), line});
        if (words.size() > kMostWords) fail(line, "more words than any command of training has");
      }
      const bool redirects = here() == '>' || here() == '<';
      if (redirects && !words.empty() && is_number(words.back().text)) words.pop_back();  // 2>FILE
    }
    if (at_ < text_.size()) take();
    if (!unknown_.empty() && looks_like_training(words)) fail(unknown_line_, unknown_);
    if (!words.empty() && unknown_.empty()) commands_.push_back(std::move(words));
  }

  // Whether somebody needs the words: other commands of a script may hold what they like.
  static bool looks_like_training(const ShellCommand& words) {
    for (const ShellWord& word : words) {
      if (word.text.rfind("--", 0) == 0) return true;
    }
    return false;
  }

  // NAME=WORD, NAME=(WORDS), NAME+=(WORDS), and what may stand before.
  bool assignment() {
    const std::size_t from = at_;
    if (text_.compare(at_, 7, "export ") == 0) at_ += 7;
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    const bool more = end + 1 < text_.size() && text_[end] == '+' && text_[end + 1] == '=';
    const bool named = end > at_ && starts_name(text_[at_]);
    if (!named || (!more && (end >= text_.size() || text_[end] != '='))) {
      at_ = from;
      return false;
    }
    const std::string name = text_.substr(at_, end - at_);
    at_ = end + (more ? 2 : 1);
    std::string outer;
    std::swap(outer, unknown_);
    Variable value;
    if (here() == '(') {
      take();
      value.words = list(name);
    } else if (!std::isspace(static_cast<unsigned char>(here())) && !ends_command()) {
      for (const std::string& one : word(true)) value.words.push_back(one);
    } else {
      value.words = {""};
    }
    value.unknown = unknown_;
    std::swap(outer, unknown_);
    Variable& kept = variables_[name];
    if (!more) kept = {};
    kept.words.insert(kept.words.end(), value.words.begin(), value.words.end());
    if (kept.words.size() > kMostWords) fail(line_, name + " holds too many words");
    if (!value.unknown.empty()) kept.unknown = value.unknown;
    return true;
  }

  std::vector<std::string> list(const std::string& name) {
    const int line = line_;
    std::vector<std::string> words;
    for (;;) {
      skip_blanks();
      if (at_ >= text_.size()) fail(line, "the list " + name + " has no )");
      if (here() == '\n') {
        take();
      } else if (here() == ')') {
        take();
        return words;
      } else {
        if (ends_command()) fail(line_, "a list of words holds no " + std::string(1, here()));
        for (std::string& one : word()) words.push_back(std::move(one));
      }
    }
  }

  // One word of the text; variables may make it none or several. `whole`: never split.
  std::vector<std::string> word(bool whole = false) {
    std::vector<std::string> done;
    std::string now;
    bool begun = false;
    while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(here())) &&
           !ends_command()) {
      const char c = here();
      if (c == '\'') {
        begun = true;
        now += single_quoted();
      } else if (c == '"') {
        begun = true;
        double_quoted(now, done);
      } else if (c == '\\') {
        take();
        if (here() == '\r' && here(1) == '\n') take();
        if (here() == '\n') {  // The line goes on in the next one.
          take();
          continue;
        }
        if (at_ < text_.size()) now += take();
        begun = true;
      } else if (c == '$' || c == '`') {
        split(value_here(), whole, now, done, begun);
      } else {
        now += take();
        begun = true;
      }
      require_length(now);
    }
    if (begun) done.push_back(now);
    return done;
  }

  // An unquoted variable: its blanks part words.
  static void split(const std::vector<std::string>& values, bool whole, std::string& now,
                    std::vector<std::string>& done, bool& begun) {
    bool first = true;
    for (const std::string& value : values) {
      if (!first && begun) {
        done.push_back(std::exchange(now, ""));
        begun = false;
      }
      first = false;
      for (const char c : value) {
        if (whole || !std::isspace(static_cast<unsigned char>(c))) {
          now += c;
          begun = true;
        } else if (begun) {
          done.push_back(std::exchange(now, ""));
          begun = false;
        }
      }
    }
  }

  std::string single_quoted() {
    const int line = line_;
    std::string text;
    take();
    while (here() != '\'') {
      if (at_ >= text_.size()) fail(line, "a ' has no end");
      text += take();
    }
    take();
    return text;
  }

  void double_quoted(std::string& now, std::vector<std::string>& done) {
    const int line = line_;
    take();
    while (here() != '"') {
      if (at_ >= text_.size()) fail(line, "a \" has no end");
      if (here() == '\\' && std::string("$`\"\\\n").find(here(1)) != std::string::npos) {
        take();
        const char c = take();
        if (c != '\n') now += c;
      } else if (here() == '$' || here() == '`') {
        const bool all =
            text_.compare(at_, 2, "${") == 0 && text_.find("[@]}", at_) < text_.find('}', at_);
        const std::vector<std::string> values = value_here();
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (i > 0 && all) done.push_back(std::exchange(now, ""));
          if (i > 0 && !all) now += ' ';
          now += values[i];
        }
      } else {
        now += take();
      }
      require_length(now);
    }
    take();
  }

  void require_length(const std::string& word) const {
    if (word.size() > kLongestWord) fail(line_, "a word is longer than any argument");
  }

  // $NAME, ${NAME}, ${NAME[@]}, ${NAME:-WORD}; the rest is for a shell to know.
  std::vector<std::string> value_here() {
    const int line = line_;
    const std::size_t from = at_;
    if (take() == '`') return unknown_output(from, line, '`');
    if (here() == '(') return unknown_output(from, line, ')');
    const bool braced = here() == '{';
    if (braced) take();
    std::string name;
    if (starts_name(here())) {
      while (is_name(here())) name += take();
    } else if (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(here())) &&
               here() != '"') {
      name = std::string(1, take());  // $1, $@, $?
    } else if (!braced) {
      return {"$"};
    }
    std::string rest;
    while (braced && here() != '}') {
      if (at_ >= text_.size() || here() == '\n') fail(line, "a ${ has no }");
      rest += take();
    }
    if (braced) take();
    return value_of(name, rest, text_.substr(from, at_ - from), line);
  }

  std::vector<std::string> value_of(const std::string& name, const std::string& rest,
                                    const std::string& written, int line) {
    const auto found = variables_.find(name);
    const bool plain = rest.empty() || rest == "[@]" || rest == "[*]";
    const bool fallback = rest.rfind(":-", 0) == 0 && rest.find('$') == std::string::npos;
    if (found == variables_.end() && fallback) return {rest.substr(2)};
    if (found == variables_.end()) {
      return note(line, shown(written) +
                            " is not set in this file: write its value in its place, or a line " +
                            (starts_name(name[0]) ? shown(name) : "NAME") + "=VALUE before it");
    }
    if (!plain && !fallback) {
      return note(
          line, shown(written) + " is more than a shell's variable: write its value in its place");
    }
    if (!found->second.unknown.empty()) note(line, found->second.unknown);
    // A list without [@] is its first word.
    if (!found->second.words.empty() && rest != "[@]" && rest != "[*]")
      return {found->second.words[0]};
    return found->second.words;
  }

  std::vector<std::string> unknown_output(std::size_t from, int line, char end) {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = take();
      depth += end == ')' && c == '(';
      if (c != end) continue;
      if (end == '`' || --depth == 0) {
        return note(
            line, shown(text_.substr(from, at_ - from)) +
                      " is a command's output, and no command is run here: write it in its place");
      }
    }
    fail(line, "a command in " + std::string(end == '`' ? "`" : "$(") + " has no end");
  }

  std::vector<std::string> note(int line, const std::string& what) {
    if (unknown_.empty()) {
      unknown_ = what;
      unknown_line_ = line;
    }
    return {""};
  }

  const std::string& text_;
  const std::string& file_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::map<std::string, Variable> variables_;
  std::string unknown_;  // Why a word of this command is not known.
  int unknown_line_ = 0;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> shell_commands(const std::string& text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace lockstep
