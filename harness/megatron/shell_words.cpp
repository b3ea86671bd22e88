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
constexpr int kDeepest = 4;  // Commands in quotes within each other.

// What nobody knows here travels within words as its number between these two, wherever variables
// and lists carry it.
constexpr char kBegin = '\1', kEnd = '\2';

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& file) : text_(text), file_(file) {
    for (char& c : text_) c = c == kBegin || c == kEnd ? '?' : c;
  }

  std::vector<ShellCommand> read() {
    while (at_ < text_.size()) command();
    for (ShellCommand& command : commands_) {
      for (ShellWord& word : command) tell_unknown(word);
    }
    return std::move(commands_);
  }

 private:
  // Reads a command that stands in a word of `outer`.
  Reader(const Reader& outer, const ShellWord& word)
      : text_(word.text),
        file_(outer.file_),
        line_(word.line),
        depth_(outer.depth_ + 1),
        variables_(outer.variables_),
        unknown_(outer.unknown_) {}

  void tell_unknown(ShellWord& word) const {
    for (std::size_t at = 0; (at = word.text.find(kBegin, at)) != std::string::npos;) {
      const std::size_t end = word.text.find(kEnd, at);
      if (end == std::string::npos) return;
      word.unknown.push_back(unknown_[std::stoul(word.text.substr(at + 1, end - at - 1))]);
      word.text.erase(at, end + 1 - at);
    }
  }

  // bash -c "torchrun ...": whoever wrote that means the command in the quotes.
  void look_inside(const ShellCommand& words) {
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
      const std::string& shell = words[i].text;
      const std::string name = shell.substr(shell.rfind('/') + 1), &option = words[i + 1].text;
      const bool is_shell = name == "bash" || name == "sh" || name == "zsh";
      if (!is_shell || option.size() < 2 || option[0] != '-' || option.back() != 'c') continue;
      if (depth_ == kDeepest) fail(words[i].line, "too many commands in quotes within each other");
      Reader inside(*this, words[i + 2]);
      while (inside.at_ < inside.text_.size()) inside.command();
      unknown_ = std::move(inside.unknown_);
      for (ShellCommand& command : inside.commands_) commands_.push_back(std::move(command));
      return;
    }
  }

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
    for (;;) {
      skip_blanks();
      if (ends_command()) break;
      if (words.empty() && assignment()) continue;
      const int line = line_;
      for (std::string& one : word()) {
        words.push_back({std::move(one), line, {}});
        if (words.size() > kMostWords) fail(line, "more words than any command of training has");
      }
      const bool redirects = here() == '>' || here() == '<';
      if (redirects && !words.empty() && is_number(words.back().text)) words.pop_back();  // 2>FILE
    }
    if (at_ < text_.size()) take();
    if (words.empty()) return;
    commands_.push_back(words);
    look_inside(words);
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
    std::vector<std::string> words{""};
    if (here() == '(') {
      take();
      words = list(name);
    } else if (!std::isspace(static_cast<unsigned char>(here())) && !ends_command()) {
      words = word(true);
    }
    std::vector<std::string>& kept = variables_[name];
    if (!more) kept.clear();
    kept.insert(kept.end(), words.begin(), words.end());
    if (kept.size() > kMostWords) fail(line_, name + " holds too many words");
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
      return note(line, written,
                  "is not set in this file: write its value in its place, or a line " +
                      (starts_name(name[0]) ? shown(name) : "NAME") + "=VALUE before it");
    }
    if (!plain && !fallback) {
      return note(line, written, "is more than a shell's variable: write its value in its place");
    }
    // A list without [@] is its first word.
    if (!found->second.empty() && rest != "[@]" && rest != "[*]") return {found->second[0]};
    return found->second;
  }

  std::vector<std::string> unknown_output(std::size_t from, int line, char end) {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = take();
      depth += end == ')' && c == '(';
      if (c != end) continue;
      if (end == '`' || --depth == 0) {
        return note(line, text_.substr(from, at_ - from),
                    "is a command's output, and no command is run here: write it in its place");
      }
    }
    fail(line, "a command in " + std::string(end == '`' ? "`" : "$(") + " has no end");
  }

  std::vector<std::string> note(int line, const std::string& written, const std::string& what) {
    unknown_.push_back({line, shown(written), shown(written) + " " + what});
    return {kBegin + std::to_string(unknown_.size() - 1) + kEnd};
  }

  std::string text_;
  const std::string& file_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  std::map<std::string, std::vector<std::string>> variables_;
  std::vector<ShellUnknown> unknown_;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> shell_commands(const std::string& text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace lockstep
