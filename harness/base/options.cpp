#include "harness/base/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <locale>
#include <sstream>
#include <utility>

#include "engine/device/cuda_object.h"
#include "harness/base/errors.h"
#include "harness/base/shell_word.h"
#include "harness/base/terminal.h"
#include "harness/base/version.h"
#include "scenarios/schema/schema.h"
#include "scenarios/syntax/nearest.h"

namespace lockstep {

namespace po = boost::program_options;

// Thirty years. Clocks count nanoseconds in 64 bits: a longer time overflows and becomes one that
// is past.
constexpr double kMostSeconds = 1e9;
// Help is the same wherever it goes.
constexpr Terminal kPage{.colours = false, .width = 80};

// Lines that begin with a word and a colon stay lines; other line ends are where the source broke.
std::string in_paragraphs(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find_first_of(": ");
    const bool is_item = end != std::string::npos && line[end] == ':';
    out += (out.empty() ? "" : is_item ? "\n" : " ") + line;
  }
  return out;
}

constexpr char kTimes[] =
    "Seconds may have a unit: 500ms, 90s, 5m, 1.5h. A file - is standard input or output.";

void validate(boost::any& value, const std::vector<std::string>& words, Duration*, int) {
  const std::string& word = po::validators::get_single_string(words);
  std::istringstream text(word);
  Duration duration;
  std::string unit;
  text.imbue(std::locale::classic());
  const std::map<std::string, double> units{{"", 1},   {"ms", 1e-3}, {"s", 1},
                                            {"m", 60}, {"min", 60},  {"h", 3600}};
  if (!(text >> duration.seconds))
    throw RequestError(word + " is no time: 90, 500ms, 5m and 1.5h are");
  text >> unit;
  const auto found = units.find(unit);
  if (found == units.end() || text.peek() != std::istringstream::traits_type::eof())
    throw RequestError(word + " is no time: 90, 500ms, 5m and 1.5h are");
  duration.seconds *= found->second;
  value = duration;
}

Options::Options(std::string command, std::string synopsis, std::string summary, int at_most)
    : command_(std::move(command)),
      synopsis_(std::move(synopsis)),
      summary_(std::move(summary)),
      at_most_(at_most) {
  flag("quiet", "no progress and no table, only what failed");
  flag("help", "this text");
  flag("version", "version and revision");
  short_form('q', "quiet").short_form('h', "help").short_form('V', "version");
}

Options& Options::flag(const char* name, const char* help) {
  description_.add_options()(name, po::bool_switch(), help);
  return *this;
}

Options& Options::text(const char* name, const char* help, const char* default_value) {
  description_.add_options()(name, po::value<std::string>()->default_value(default_value), help);
  return *this;
}

Options& Options::number(const char* name, const char* help, std::int64_t default_value,
                         std::int64_t min, std::int64_t max) {
  description_.add_options()(name, po::value<std::int64_t>()->default_value(default_value), help);
  limits_.push_back({name, min, max});
  return *this;
}

Options& Options::seconds(const char* name, const char* help, std::optional<double> default_value) {
  auto* value = po::value<Duration>();
  std::ostringstream shown;
  if (default_value) shown << *default_value;
  if (default_value) value->default_value(Duration{*default_value}, shown.str());
  description_.add_options()(name, value, help);
  return *this;
}

Options& Options::choice(const char* name, const char* help, std::vector<std::string> words,
                         const char* default_value) {
  choices_.push_back({name, std::move(words)});
  return text(name, help, default_value);
}

Options& Options::short_form(char letter, const char* name) {
  short_forms_[std::string("-") + letter] = std::string("--") + name;
  return *this;
}

Options& Options::example(const char* line, const char* does) {
  examples_.push_back({line, does});
  return *this;
}

std::vector<std::string> Options::in_long_form(std::vector<std::string> words) const {
  for (std::string& word : words) {
    if (word == "--") break;
    if (const auto found = short_forms_.find(word); found != short_forms_.end())
      word = found->second;
  }
  return words;
}

Options& Options::device() {
  return choice("device", "auto, sim or cuda; auto is an NVIDIA GPU if there is one",
                {"auto", "sim", "cuda"}, "auto")
      .text("cuda-object", "load this CUDA object instead of the program's own; its code is run");
}

Options& Options::reports() {
  return text("json", "write the result to this file")
      .text("junit", "write a JUnit report to this file")
      .text("html", "write a page for people to this file");
}

Options& Options::planted() {
  return text("plant",
              "plant this fault in kernels, engine or at the device door, to see it caught")
      .text("mutate-oracle", "plant this error in the oracle, to see it caught")
      .text("mutate-checker", "plant this error in the checker, to see it caught");
}

Options& Options::isolation() {
  return seconds("timeout", "seconds after which the watchdog kills a scenario", 300)
      .flag("no-fork", "run in this process, for debuggers")
      .any_size();
}

Options& Options::any_size() {
  return flag("any-size",
              "run a scenario although this machine has less memory than it takes at least");
}

Options& Options::deadline() {
  return seconds(
      "deadline",
      "seconds within which every rank has to come to a collective, where ranks are processes", 60);
}

Options& Options::launched() {
  return deadline().text("meeting",
                         "where processes meet that a launcher started: a path on their machine, "
                         "or HOST:PORT of rank 0");
}

bool Options::parse(const std::vector<std::string>& words) {
  command_line_ = "lockstep " + command_ + (words.empty() ? "" : " ") + shell_line(words);
  po::options_description all = description_;
  all.add_options()("word", po::value<std::vector<std::string>>(), "");
  po::positional_options_description positional;
  positional.add("word", -1);
  using namespace po::command_line_style;
  const int style = unix_style & ~allow_guessing & ~allow_short;
  try {
    po::store(po::command_line_parser(in_long_form(words))
                  .options(all)
                  .positional(positional)
                  .style(style)
                  .run(),
              given_);
    po::notify(given_);
  } catch (const po::unknown_option& error) {
    const std::string name = error.get_option_name();
    const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    const std::string key = key_from_megatron(bare);
    if (!key.empty()) {
      throw RequestError("unknown option " + name + ": it is the key " + key +
                         " of a scenario file; see `lockstep describe --schema`");
    }
    throw RequestError("unknown option " + name + nearest_hint(bare, names(), "; nearest: --") +
                       "; see --help");
  } catch (const po::error& error) {
    throw RequestError(error.what());
  }
  if (has("help")) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  if (has("version")) {
    std::printf("lockstep %s (%s)\n", version(), revision());
    return false;
  }
  if (given_.count("word")) positional_ = given_["word"].as<std::vector<std::string>>();
  const bool literal = std::find(words.begin(), words.end(), "--") != words.end();
  for (const std::string& word : positional_) {
    if (word.size() < 2 || word[0] != '-' || literal) continue;
    throw RequestError("unknown option " + word +
                       ": options begin with two dashes, see --help; a file, ./" + word);
  }
  if (at_most_ >= 0 && static_cast<int>(positional_.size()) > at_most_) {
    throw RequestError("one word too many: " + positional_[at_most_]);
  }
  check_ranges();
  if (has("cuda-object")) use_cuda_object(text("cuda-object"));
  return true;
}

std::string Options::all_of(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += " " + word;
  return list;
}

void Options::check_ranges() const {
  for (const Limit& limit : limits_) {
    const std::int64_t value = number(limit.name.c_str());
    const std::string option = "--" + limit.name + " must be at ";
    if (value < limit.min) throw RequestError(option + "least " + std::to_string(limit.min));
    if (value > limit.max) throw RequestError(option + "most " + std::to_string(limit.max));
  }
  for (const auto& option : description_.options()) {
    const std::string& name = option->long_name();
    const Duration* value = boost::any_cast<Duration>(&given_[name].value());
    if (value && !(value->seconds > 0 && std::isfinite(value->seconds))) {
      throw RequestError("--" + name + " must be a positive number of seconds");
    }
    if (value && value->seconds > kMostSeconds) {
      throw RequestError("--" + name + " must be at most 1000000000 seconds");
    }
    const std::string* word = boost::any_cast<std::string>(&given_[name].value());
    if (word && word->empty() && has(name.c_str())) throw RequestError("--" + name + " is empty");
  }
  for (const Choice& choice : choices_) {
    const std::string value = text(choice.name);
    if (!has(choice.name) ||
        std::find(choice.words.begin(), choice.words.end(), value) != choice.words.end())
      continue;
    const std::string near = nearest_word(value, choice.words);
    throw RequestError("--" + std::string(choice.name) + " knows no " + value +
                       (near.empty() ? "; it takes one of these:" : "; nearest: " + near) +
                       (near.empty() ? all_of(choice.words) : ""));
  }
}

bool Options::knows(const char* name) const {
  return description_.find_nothrow(name, false) != nullptr;
}

bool Options::has(const char* name) const {
  const po::variable_value& value = given_[name];
  if (const bool* set = boost::any_cast<bool>(&value.value())) return *set;
  return !value.empty() && !value.defaulted();
}

const std::string& Options::word() const {
  if (positional_.empty())
    throw RequestError("a word is missing: lockstep " + command_ + " " + synopsis_);
  return positional_.front();
}

std::string Options::text(const char* name) const { return given_[name].as<std::string>(); }
std::int64_t Options::number(const char* name) const { return given_[name].as<std::int64_t>(); }
double Options::seconds(const char* name) const { return given_[name].as<Duration>().seconds; }

std::vector<std::string> Options::names() const {
  std::vector<std::string> list;
  for (const auto& option : description_.options()) list.push_back(option->long_name());
  return list;
}

std::string Options::help() const {
  std::ostringstream text;
  text << "lockstep " << command_ << (synopsis_.empty() ? "" : " ") << synopsis_ << "\n"
       << fitted(in_paragraphs(summary_) + "\n", kPage, 0) << "\n"
       << description_ << "\nshort forms:";
  for (const auto& [letter, name] : short_forms_) text << " " << letter << " " << name;
  text << "\n\n" << fitted(std::string(kTimes) + "\n" + kExitStatuses + "\n", kPage);
  if (!examples_.empty()) text << "\nexamples:\n";
  for (const Example& one : examples_) text << "  " << one.line << "\n      " << one.does << "\n";
  return text.str();
}

std::vector<OptionHelp> Options::all() const {
  std::vector<OptionHelp> list;
  for (const auto& option : description_.options()) {
    OptionHelp one{option->long_name(), 0, option->description()};
    boost::any value;
    one.takes_value = option->semantic()->max_tokens() > 0;
    if (one.takes_value && option->semantic()->apply_default(value)) {
      std::ostringstream shown;  // As boost prints it: "arg (=300)".
      shown << option->format_parameter();
      const std::string text = shown.str();
      if (const std::size_t begin = text.find("(="); begin != std::string::npos)
        one.default_value = text.substr(begin + 2, text.size() - begin - 3);
    }
    for (const auto& [letter, name] : short_forms_) {
      if (name == "--" + one.name) one.letter = letter[1];
    }
    for (const Choice& choice : choices_) {
      if (choice.name == one.name) one.choices = choice.words;
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace lockstep
