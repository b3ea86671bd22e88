// What somebody asked Megatron-LM for: the values of its fields, from a command line or from the
// block of arguments in a log.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/megatron/options.h"

namespace lockstep {

class MegatronRequest {
 public:
  // Reads either form; `file` names the text in errors. RequestError for a text that has neither,
  // for a second command of training, and for an option without its value.
  MegatronRequest(const std::string& text, const std::string& file);

  // As given, by default, or nullopt where the field has no value ("None").
  std::optional<std::string> text(const std::string& field) const;
  bool flag(const std::string& field) const { return text(field) == "True"; }
  // RequestError where it is no number.
  std::optional<std::int64_t> integer(const std::string& field) const;
  std::optional<double> number(const std::string& field) const;
  std::vector<std::string> list(const std::string& field) const;
  // Whether it was given, and is not what it would be anyway.
  bool is_given(const std::string& field) const { return given_.count(field) > 0; }
  bool differs_from_default(const std::string& field) const;

  // The fields that were given, in alphabetical order.
  std::vector<std::string> fields() const;
  // Names that neither branch of Megatron-LM has.
  const std::vector<std::string>& unknown() const { return unknown_; }
  // The line where such a name stands.
  int line_of_unknown(const std::string& name) const { return unknown_lines_.at(name); }
  bool is_log() const { return is_log_; }
  // By the launcher's options or the log: nproc_per_node times nnodes.
  std::optional<std::int64_t> world_size() const { return world_size_; }
  // The field as its text has it: an option, or a name of the log.
  std::string name_of(const std::string& field) const;
  // The first of these fields that is wanted and not there, with the others, and what may be
  // misspelt.
  [[noreturn]] void fail_missing(const std::vector<std::string>& fields) const;
  [[noreturn]] void fail(const std::string& field, const std::string& what) const;

 private:
  struct Given {
    std::vector<std::string> values;
    int line = 0;
    std::string name;  // As it was written.
  };
  bool read_log(const std::string& text);
  void read_command(const std::string& text);
  void take_launcher(const std::string& option, const std::string& value);

  std::string file_;
  std::map<std::string, Given> given_;
  std::vector<std::string> unknown_;
  std::map<std::string, int> unknown_lines_;
  bool is_log_ = false;
  std::optional<std::int64_t> world_size_;
};

}  // namespace lockstep
