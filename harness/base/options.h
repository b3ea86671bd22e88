// The options of one command. Any error in them is a RequestError that says what would be right.
#pragma once

#include <boost/any.hpp>
#include <boost/program_options.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The value of an option that is a time: a number of seconds, or one with a unit (500ms, 90s, 5m,
// 1.5h).
struct Duration {
  double seconds = 0;
};
void validate(boost::any& value, const std::vector<std::string>& words, Duration*, int);

// What help, completion and the manual say of one option.
struct OptionHelp {
  std::string name;  // Without its dashes.
  char letter = 0;   // The letter of its short form; 0 if it has none.
  std::string help;
  bool takes_value = false;
  std::string default_value = {};         // "" without.
  std::vector<std::string> choices = {};  // Empty: any value.
};

class Options {
 public:
  // `synopsis` is what follows the command's name ("[FILE...]"); `at_most` positional words, -1 for
  // any number.
  Options(std::string command, std::string synopsis, std::string summary, int at_most);

  Options& flag(const char* name, const char* help);
  Options& text(const char* name, const char* help, const char* default_value = "");
  Options& number(const char* name, const char* help, std::int64_t default_value, std::int64_t min,
                  std::int64_t max = INT64_MAX);
  Options& seconds(const char* name, const char* help, std::optional<double> default_value = {});
  // `-c` stands for the option `name`, which was added before.
  Options& short_form(char letter, const char* name);
  // One of `words`.
  // A command line for the help text, and what it does.
  Options& example(const char* line, const char* does);
  Options& choice(const char* name, const char* help, std::vector<std::string> words,
                  const char* default_value = "");
  Options& device();     // --device, --cuda-object
  Options& reports();    // --json, --junit, --html
  Options& planted();    // --plant, --mutate-oracle, --mutate-checker
  Options& isolation();  // --timeout, --no-fork, --any-size
  Options& any_size();   // --any-size
  Options& deadline();   // --deadline
  Options& launched();   // --deadline, --meeting

  // Returns false if --help or --version was given and printed.
  bool parse(const std::vector<std::string>& words);

  bool knows(const char* name) const;  // The command has this option.
  bool has(const char* name) const;    // A flag that is set, or an option that was given.
  std::string text(const char* name) const;
  std::int64_t number(const char* name) const;
  double seconds(const char* name) const;
  const std::vector<std::string>& words() const { return positional_; }
  // The first of them, without which the command has nothing to do.
  const std::string& word() const;
  std::string help() const;

  // The line that was parsed, as a shell takes it: "lockstep verify mine.yaml".
  const std::string& command_line() const { return command_line_; }
  const std::string& command() const { return command_; }
  const std::string& synopsis() const { return synopsis_; }
  const std::string& summary() const { return summary_; }
  std::vector<OptionHelp> all() const;  // In the order in which they were added.
  struct Example {
    std::string line, does;
  };
  const std::vector<Example>& examples() const { return examples_; }

 private:
  struct Limit {
    std::string name;
    std::int64_t min, max;
  };
  struct Choice {
    const char* name;
    std::vector<std::string> words;
  };
  std::vector<std::string> names() const;
  std::vector<std::string> in_long_form(std::vector<std::string> words) const;
  void check_ranges() const;
  static std::string all_of(const std::vector<std::string>& words);

  std::string command_, synopsis_, summary_, command_line_;
  int at_most_;
  boost::program_options::options_description description_{"options"};
  boost::program_options::variables_map given_;
  std::vector<Limit> limits_;
  std::vector<Choice> choices_;
  std::map<std::string, std::string> short_forms_;
  std::vector<Example> examples_;
  std::vector<std::string> positional_;
};

}  // namespace lockstep
