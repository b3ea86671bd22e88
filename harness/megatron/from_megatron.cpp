#include "harness/megatron/from_megatron.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "harness/base/errors.h"
#include "harness/megatron/carrier.h"
#include "scenarios/io/reader.h"
#include "scenarios/syntax/nearest.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostBytes = 64 << 20;  // A log is read as far as its arguments.

// A name by the rules of scenarios, from that of the file.
std::string name_of(const std::string& file) {
  std::string name;
  for (const char c : std::filesystem::path(file).stem().string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
    name += plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '-';
  }
  name = "from-megatron-" + name;
  return name.substr(0, 64);
}

std::string one_line(const FromMegatron::Left& left) {
  return shown(left.field) + " " + shown(left.value) + (left.why.empty() ? "" : ": " + left.why);
}

void add_list(std::string& text, const std::string& title, const std::vector<std::string>& lines) {
  text += "# " + title + (lines.empty() ? ": nothing\n" : "\n");
  for (const std::string& line : lines) text += "#   " + line + "\n";
}

std::vector<std::string> lines_of(const std::vector<FromMegatron::Left>& list) {
  std::vector<std::string> lines;
  for (const FromMegatron::Left& left : list) lines.push_back(one_line(left));
  std::sort(lines.begin(), lines.end());
  return lines;
}

// " (nearest: --num-layers)", of options for a command line, of fields for a log. Whoever wrote the
// beginning of a name meant it.
std::string nearest_in_brackets(const std::string& name) {
  const bool is_option = name.rfind("--", 0) == 0;
  std::vector<std::string> names;
  std::string nearest;
  for (const MegatronOption& one : megatron_options()) {
    names.push_back(is_option ? "--" + one.option : one.field);
    if (nearest.empty() && names.back().rfind(name + (is_option ? "-" : "_"), 0) == 0)
      nearest = names.back();
  }
  if (nearest.empty()) nearest = nearest_name(name, names);
  return nearest.empty() ? "" : " (nearest: " + nearest + ")";
}

// Names alone, as many a line as fit.
std::vector<std::string> wrapped(const std::vector<std::string>& names) {
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    if (lines.empty() || lines.back().size() + name.size() > 90) {
      lines.push_back(name);
    } else {
      lines.back() += ", " + name;
    }
  }
  return lines;
}

}  // namespace

FromMegatron from_megatron(const MegatronRequest& request, Sizes sizes, const std::string& file) {
  Carrier carrier(request, sizes);
  carrier.carry();
  FromMegatron from = std::move(carrier).settled(file);
  from.scenario.name = name_of(file);
  from.yaml = to_yaml(from.scenario);
  return from;
}

FromMegatron from_megatron_file(const std::string& path, Sizes sizes) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) throw RequestError(path + " is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RequestError(path + " cannot be read");
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  if (text.size() > kMostBytes)
    throw RequestError(path + " is larger than 64 MiB: give its block of arguments alone");
  return from_megatron(MegatronRequest(text, path), sizes, path);
}

std::string to_commented_yaml(const FromMegatron& from, const std::string& file, Sizes sizes) {
  std::string text = "# Megatron-LM, " + shown(file) + ", sizes " +
                     (sizes == Sizes::small ? "small" : "kept") + ": " +
                     std::to_string(from.carried.size()) + " fields have a key.\n";
  std::vector<std::string> changed, names;
  for (const FromMegatron::Changed& one : from.changed) {
    changed.push_back(one.key + ": " + one.is +
                      (one.by_default ? ": Megatron's default " + one.asked + " is refused here: "
                                      : " for " + one.asked + ": ") +
                      one.why);
  }
  add_list(text, "Otherwise than asked", changed);
  if (sizes == Sizes::small)
    add_list(text, "Made small (--sizes keep: as they are)", wrapped(from.made_small));
  add_list(text, "Not carried, arithmetic: something else is computed", lines_of(from.arithmetic));
  add_list(text, "Not carried, machinery: it is done another way", lines_of(from.machinery));
  add_list(text, "As here, always", lines_of(from.as_here));
  std::vector<FromMegatron::Left> idle;
  for (const FromMegatron::Left& left : from.no_effect) {
    if (left.why.find("no effect without") == 0) {
      idle.push_back(left);
    } else {
      names.push_back(shown(left.field));
    }
  }
  std::vector<std::string> without_effect = lines_of(idle);
  for (std::string& line : wrapped(names)) without_effect.push_back(std::move(line));
  add_list(text, "Without effect here", without_effect);
  std::vector<std::string> unknown;
  for (const std::string& name : from.unknown)
    unknown.push_back(shown(name) + nearest_in_brackets(name));
  add_list(text, "Not known here, of neither main nor dev", wrapped(unknown));
  return text + from.yaml;
}

}  // namespace lockstep
