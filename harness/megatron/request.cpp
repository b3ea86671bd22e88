#include "harness/megatron/request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "harness/base/errors.h"
#include "harness/megatron/shell_words.h"
#include "scenarios/syntax/nearest.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// What Megatron computes and prints among its arguments, and names of older versions.
const std::map<std::string, std::string>& other_fields() {
  static const std::map<std::string, std::string> names{
      {"cuda_graph_scope", "cuda_graph_scope_deprecated"},
      {"cuda_graph_max_packed_seqs", "cuda_graph_max_packed_seqs"},
      {"data_parallel_size", "data_parallel_size"},
      {"norm_epsilon", "layernorm_epsilon"},
      {"use_nccl_ub", "nccl_ub"},
      {"world_size", "world_size"},
  };
  return names;
}

const std::set<std::string>& computed_fields() {
  static const std::set<std::string> names{"rank",
                                           "params_dtype",
                                           "virtual_pipeline_model_parallel_size",
                                           "consumed_train_samples",
                                           "skipped_train_samples",
                                           "consumed_valid_samples",
                                           "iteration",
                                           "start_weight_decay",
                                           "end_weight_decay",
                                           "transformer_pipeline_model_parallel_size",
                                           "variable_seq_lengths"};
  return names;
}

template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

// Python's lists, of texts or of enums: ['attn', 'mlp'], [<CudaGraphModule.attn: 1>].
std::vector<std::string> items_of(const std::string& text) {
  std::vector<std::string> items;
  std::string now;
  for (const char c : text) {
    if (c == ',' || c == ' ') {
      if (!now.empty()) items.push_back(std::exchange(now, ""));
    } else if (std::string("[]()'\"").find(c) == std::string::npos) {
      now += c;
    }
  }
  if (!now.empty()) items.push_back(now);
  std::vector<std::string> words;
  for (std::string& item : items) {
    if (item.front() == '<') {
      const std::size_t point = item.find('.');
      item = item.substr(point == std::string::npos ? 1 : point + 1);
      if (!item.empty() && item.back() == ':') item.pop_back();
    } else if (item.back() == '>') {
      continue;  // The number of the enum before it.
    }
    words.push_back(item);
  }
  return words;
}

// "  hidden_size ..................................... 4096", after whatever a launcher puts
// before.
bool is_argument(const std::string& line, std::string& name, std::string& value) {
  const std::size_t dots = line.find(" ..");
  if (dots == std::string::npos || dots == 0) return false;
  const std::size_t end = line.find_first_not_of('.', dots + 1);
  if (end == std::string::npos || line[end] != ' ') return false;
  const std::size_t blank = line.find_last_of(" \t:", dots - 1);
  name = line.substr(blank == std::string::npos ? 0 : blank + 1,
                     dots - (blank == std::string::npos ? 0 : blank + 1));
  value = line.substr(end + 1);
  while (!value.empty() && (value.back() == '\r' || value.back() == ' ')) value.pop_back();
  const bool plain = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  return !name.empty() && plain && !value.empty();
}

// Without the class of an enum; nullopt for what has no value.
std::optional<std::string> plain_text(const std::string& value) {
  const std::size_t point = value.rfind("AttnBackend.", 0) == 0 ? value.find('.') + 1 : 0;
  return value.empty() || value == "None" ? std::nullopt : std::optional(value.substr(point));
}

bool is_script(const std::string& word) {
  return word.size() > 3 && word.compare(word.size() - 3, 3, ".py") == 0;
}

// The words after the script, and how many of them are options of Megatron.
struct Training {
  std::vector<ShellWord> launcher, words;
  int options = 0;
};

Training training_of(const ShellCommand& command) {
  const auto script = std::find_if(command.begin(), command.end(),
                                   [](const ShellWord& word) { return is_script(word.text); });
  Training training;
  const auto first = script == command.end() ? command.begin() : script + 1;
  if (script != command.end()) training.launcher.assign(command.begin(), script);
  training.words.assign(first, command.end());
  for (const ShellWord& word : training.words) {
    const std::string name = word.text.substr(0, word.text.find('='));
    training.options += find_megatron_option(name) != nullptr;
  }
  return training;
}

bool counts_processes(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin(), name.end(), '-', '_');
  return name == "__nproc_per_node" || name == "__nnodes";
}

void add(std::vector<ShellUnknown>& all, const std::vector<ShellUnknown>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Only those of a launcher's words that count processes matter.
std::vector<ShellUnknown> needed(const Training& training) {
  std::vector<ShellUnknown> unknown;
  for (std::size_t i = 0; i < training.launcher.size(); ++i) {
    if (!counts_processes(training.launcher[i].text)) continue;
    add(unknown, training.launcher[i].unknown);
    const bool is_next = training.launcher[i].text.find('=') == std::string::npos;
    if (is_next && i + 1 < training.launcher.size()) add(unknown, training.launcher[i + 1].unknown);
  }
  for (const ShellWord& word : training.words) add(unknown, word.unknown);
  return unknown;
}

// RequestError for the first of them, which names the others.
void require_known(const std::vector<ShellUnknown>& unknown, const std::string& file) {
  if (unknown.empty()) return;
  std::set<std::string> told{unknown.front().written};
  std::string others;
  for (const ShellUnknown& one : unknown) {
    if (!told.insert(one.written).second) continue;
    others += (others.empty() ? "; also unknown: " : ", ") + one.written + " (line " +
              std::to_string(one.line) + ")";
  }
  throw RequestError(file + ":" + std::to_string(unknown.front().line) + ": " +
                     unknown.front().what + others);
}

}  // namespace

MegatronRequest::MegatronRequest(const std::string& text, const std::string& file) : file_(file) {
  is_log_ = read_log(text);
  if (!is_log_) read_command(text);
  std::sort(unknown_.begin(), unknown_.end());
  unknown_.erase(std::unique(unknown_.begin(), unknown_.end()), unknown_.end());
  if (const auto world = integer("world_size")) world_size_ = world;
}

bool MegatronRequest::read_log(const std::string& text) {
  int line_number = 0, found = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, std::min<std::size_t>(end - at, 1 << 16));
    at = end + 1;
    ++line_number;
    if (found > 0 && line.find("end of arguments") != std::string::npos) break;
    std::string name, value;
    if (!is_argument(line, name, value)) continue;
    ++found;
    const auto other = other_fields().find(name);
    if (other != other_fields().end()) name = other->second;
    const MegatronOption* option = find_megatron_field(name);
    if (option == nullptr && other == other_fields().end()) {
      if (computed_fields().count(name) == 0) unknown_.push_back(name);
      unknown_lines_.emplace(name, line_number);
      continue;
    }
    const bool many = option != nullptr && option->takes == MegatronOption::Takes::many;
    given_[name] = {many ? items_of(value) : std::vector<std::string>{value}, line_number, name};
  }
  return found >= 2;  // One such line may be a comment of a script.
}

void MegatronRequest::read_command(const std::string& text) {
  Training training;
  given_.clear();
  unknown_.clear();
  unknown_lines_.clear();
  std::vector<ShellUnknown> hidden;  // In a command that may be one of training.
  for (const ShellCommand& command : shell_commands(text, file_)) {
    Training one = training_of(command);
    if (one.options == 0 && hidden.empty() && !one.launcher.empty()) {
      for (const ShellWord& word : one.words) add(hidden, word.unknown);
    }
    if (one.options == 0) continue;
    if (training.options > 0) {
      throw RequestError(file_ + ":" + std::to_string(one.words.front().line) +
                         ": a second command with options of Megatron-LM: leave one of them");
    }
    training = std::move(one);
  }
  if (training.options == 0) require_known(hidden, file_);
  if (training.options == 0) {
    throw RequestError(
        file_ + ": neither a command line of Megatron-LM nor the block of arguments of its log");
  }
  require_known(needed(training), file_);
  for (std::size_t i = 0; i + 1 < training.launcher.size(); ++i) {
    const std::string& word = training.launcher[i].text;
    const std::size_t equals = word.find('=');
    take_launcher(word.substr(0, equals), equals == std::string::npos
                                              ? training.launcher[i + 1].text
                                              : word.substr(equals + 1));
  }
  const std::vector<ShellWord>& words = training.words;
  for (std::size_t i = 0; i < words.size();) {
    const ShellWord& word = words[i++];
    if (word.text.rfind("--", 0) != 0) {
      throw RequestError(file_ + ":" + std::to_string(word.line) + ": " + shown(word.text) +
                         " belongs to no option");
    }
    const std::size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    Given given{{}, word.line, name};
    if (equals != std::string::npos) given.values.push_back(word.text.substr(equals + 1));
    while (i < words.size() && words[i].text.rfind("--", 0) != 0)
      given.values.push_back(words[i++].text);
    const MegatronOption* option = find_megatron_option(name);
    std::string field = name.substr(2);
    std::replace(field.begin(), field.end(), '-', '_');
    const auto other = other_fields().find(field);
    if (option == nullptr && other == other_fields().end()) {
      unknown_.push_back(name);
      unknown_lines_.emplace(name, word.line);
      continue;
    }
    field = option != nullptr ? option->field : other->second;
    const MegatronOption::Takes takes =
        option != nullptr ? option->takes : MegatronOption::Takes::one;
    const auto wrong = [&](const std::string& what) {
      throw RequestError(file_ + ":" + std::to_string(word.line) + ": " + shown(name) + " " + what);
    };
    const bool is_flag =
        takes == MegatronOption::Takes::sets || takes == MegatronOption::Takes::clears;
    if (is_flag && !given.values.empty())
      wrong("takes no value, and has " + shown(given.values[0]));
    if (is_flag) given.values = {takes == MegatronOption::Takes::sets ? "True" : "False"};
    if (takes == MegatronOption::Takes::one && given.values.size() != 1)
      wrong(given.values.empty() ? "has no value"
                                 : "takes one value, and has also " + shown(given.values[1]));
    given_[field] = std::move(given);
  }
}

void MegatronRequest::take_launcher(const std::string& option, const std::string& value) {
  const std::optional<std::int64_t> count = parsed<std::int64_t>(value);
  if (!counts_processes(option) || !count || *count < 1 || *count > 1 << 20) return;
  world_size_ = world_size_.value_or(1) * *count;
}

std::string MegatronRequest::name_of(const std::string& field) const {
  const auto found = given_.find(field);
  if (found != given_.end()) return shown(found->second.name);
  const MegatronOption* option = find_megatron_field(field);
  return is_log_ || option == nullptr ? field : "--" + option->option;
}

void MegatronRequest::fail_missing(const std::vector<std::string>& fields) const {
  const std::string name = name_of(fields.front());
  std::string what = name + " is missing";
  for (const std::string& one : unknown_) {
    if (nearest_name(one, {name}) == name) {
      what +=
          " (line " + std::to_string(line_of_unknown(one)) + " has " + shown(one) + ": misspelt?)";
      break;
    }
  }
  for (std::size_t i = 1; i < fields.size(); ++i)
    what += (i == 1 ? "; also missing: " : ", ") + name_of(fields[i]);
  throw RequestError(file_ + ": " + what + ": no model without it");
}

void MegatronRequest::fail(const std::string& field, const std::string& what) const {
  const auto found = given_.find(field);
  const std::string line = found == given_.end() ? "" : ":" + std::to_string(found->second.line);
  throw RequestError(file_ + line + ": " + name_of(field) + " " + what);
}

std::optional<std::string> MegatronRequest::text(const std::string& field) const {
  const auto found = given_.find(field);
  std::string value;
  if (found != given_.end()) {
    if (!found->second.values.empty()) value = found->second.values[0];
  } else if (const MegatronOption* option = find_megatron_field(field)) {
    value = option->value;
  }
  return plain_text(value);
}

std::optional<std::int64_t> MegatronRequest::integer(const std::string& field) const {
  const std::optional<std::string> value = text(field);
  if (!value) return {};
  const std::optional<std::int64_t> number = parsed<std::int64_t>(*value);
  if (!number || *number < 0 || *number > std::int64_t{1} << 40)
    fail(field, "is " + shown(*value) + ", no number that makes sense");
  return number;
}

std::optional<double> MegatronRequest::number(const std::string& field) const {
  const std::optional<std::string> value = text(field);
  if (!value) return {};
  const std::optional<double> number = parsed<double>(*value);
  if (!number || !std::isfinite(*number) || *number < 0)
    fail(field, "is " + shown(*value) + ", no number that makes sense");
  return number;
}

std::vector<std::string> MegatronRequest::list(const std::string& field) const {
  const auto found = given_.find(field);
  std::vector<std::string> words;
  if (found == given_.end()) return words;
  for (const std::string& value : found->second.values) {
    for (std::string& item : items_of(value)) words.push_back(std::move(item));
  }
  std::erase(words, "None");
  return words;
}

bool MegatronRequest::differs_from_default(const std::string& field) const {
  const auto found = given_.find(field);
  const MegatronOption* option = find_megatron_field(field);
  if (found == given_.end()) return false;
  if (option == nullptr) return true;
  if (option->takes == MegatronOption::Takes::many)
    return list(field) != items_of(option->value == "None" ? "" : option->value);
  const std::string value = text(field).value_or("None");
  const std::string usual = plain_text(option->value).value_or("None");
  const std::optional<double> a = parsed<double>(value), b = parsed<double>(usual);
  return a && b ? *a != *b : value != usual;
}

std::vector<std::string> MegatronRequest::fields() const {
  std::vector<std::string> names;
  for (const auto& [name, _] : given_) names.push_back(name);
  return names;
}

}  // namespace lockstep
