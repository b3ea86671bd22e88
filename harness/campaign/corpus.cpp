#include "harness/campaign/corpus.h"

#include <cctype>
#include <cstdio>
#include <filesystem>

#include "engine/checkpoint/whole_file.h"
#include "harness/base/errors.h"
#include "harness/base/write_file.h"
#include "harness/run/library.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The folder in a corpus for files that are no scenarios of this revision.
constexpr char kUnreadable[] = "unreadable";

// "layers.3.norm.out" -> "norm.out": which layer it was is no part of the cause.
std::string tensor_kind(const std::string& tensor) {
  std::string kind, part;
  for (std::size_t i = 0; i <= tensor.size(); ++i) {
    if (i < tensor.size() && tensor[i] != '.') {
      part += tensor[i];
      continue;
    }
    const bool number = part.find_first_not_of("0123456789") == std::string::npos;
    if (!number && part != "layers") kind += (kind.empty() ? "" : ".") + part;
    part.clear();
  }
  return kind;
}

// Each run of digits, and each word in hex, is one #.
std::string without_numbers(const std::string& reason) {
  constexpr std::size_t kLength = 100;
  std::string text;
  for (std::size_t i = 0; i < reason.size() && text.size() < kLength;) {
    if (!std::isalnum(static_cast<unsigned char>(reason[i]))) {
      text += reason[i++];
      continue;
    }
    std::string word;
    while (i < reason.size() && std::isalnum(static_cast<unsigned char>(reason[i])))
      word += reason[i++];
    const bool has_digit = word.find_first_of("0123456789") != std::string::npos;
    const bool numeric =
        has_digit && word.find_first_not_of("0123456789abcdefx") == std::string::npos;
    text += numeric ? "#" : word;
  }
  return text;
}

// "no result within 60 s: running, in malloc < lockstep::Arena::make < ..." -> "running /
// lockstep::Arena::make": the innermost function of lockstep. Below it the watchdog finds another
// one each time.
std::string hanging_part(const std::string& reason) {
  const std::size_t words = reason.find(": "), stack = reason.find(", in ");
  std::string part = words == std::string::npos ? without_numbers(reason)
                                                : reason.substr(words + 2, stack - words - 2);
  const std::size_t own = reason.find("lockstep::", std::min(stack, reason.size()));
  if (own != std::string::npos) part += " / " + reason.substr(own, reason.find(" <", own) - own);
  return part;
}

std::string slug(const std::string& text) {
  constexpr std::size_t kLength = 48;
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!plain && !out.empty() && out.back() != '-') out += '-';
    if (out.size() == kLength) break;
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

// FNV-1a: names files, guards nothing.
std::uint32_t hash_of(const std::string& text) {
  std::uint32_t hash = 2166136261u;
  for (const unsigned char c : text) hash = (hash ^ c) * 16777619u;
  return hash;
}

}  // namespace

std::string class_of(const CaseResult& result) {
  if (result.first_difference) {
    return to_text(result.judge) + " / " + result.first_difference->op + " / " +
           tensor_kind(result.first_difference->tensor);
  }
  // A hang is told from another by where it hangs, not by how long we waited.
  if (result.judge == JudgeKind::watchdog)
    return to_text(result.judge) + " / " + hanging_part(result.reason);
  return to_text(result.judge) + " / " + without_numbers(result.reason);
}

boost::json::array to_json(const std::vector<UnreadableFile>& files) {
  boost::json::array list;
  for (const UnreadableFile& one : files)
    list.push_back({{"file", one.file}, {"error", one.error}});
  return list;
}

std::string unreadable_text(const std::vector<UnreadableFile>& files) {
  if (files.empty()) return "";
  std::string text;
  for (const UnreadableFile& one : files) {
    text += one.error;
    if (text.back() != '\n') text += '\n';
  }
  return text + std::to_string(files.size()) +
         (files.size() == 1 ? " file of the corpus is no scenario"
                            : " files of the corpus are no scenarios") +
         " of this revision: moved to unreadable/; correct or delete " +
         (files.size() == 1 ? "it\n" : "them\n");
}

Corpus::Corpus(const std::string& folder) : folder_(folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) {
    throw WorldError(folder +
                     ": cannot make this folder: " + (error ? error.message() : "it is a file"));
  }
  lock_ = std::make_unique<LockedFile>(folder + "/.lock", "corpus");
  for (const std::string& one : {folder, folder + "/refused"}) {
    remove_leftovers(one, [](const std::string& name) { return name.ends_with(".yaml"); });
  }
}

std::vector<std::string> Corpus::files() const {
  std::vector<std::string> list;
  for (const std::string& path : scenario_files(folder_)) {
    const fs::path file = fs::path(path).lexically_relative(folder_);
    if (*file.begin() != kUnreadable) list.push_back(file.string());
  }
  return list;
}

std::vector<CorpusCase> Corpus::read(const std::vector<std::string>& files,
                                     std::vector<UnreadableFile>& unreadable) const {
  std::vector<CorpusCase> cases;
  for (const std::string& file : files) {
    std::vector<ScenarioError> errors;
    for (PlannedCase& one : plan_file(folder_ + "/" + file, true, errors))
      cases.push_back({file, std::move(one)});
    if (errors.empty()) continue;
    unreadable.push_back({file, text_of({errors.front()})});
    set_aside(file);
  }
  return cases;
}

void Corpus::set_aside(const std::string& file) const {
  const fs::path from = fs::path(folder_) / file, to = fs::path(folder_) / kUnreadable / file;
  std::error_code error;
  if (!fs::exists(from, error)) return;  // A resumed campaign had it, and it was deleted since.
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::rename(from, to, error);
  if (error)
    throw WorldError(from.string() + ": cannot be moved to " + to.string() + ": " +
                     error.message());
}

std::string Corpus::file_of(const std::string& failure_class) {
  char hash[16];
  std::snprintf(hash, sizeof hash, "-%08x.yaml", hash_of(failure_class));
  return slug(failure_class) + hash;
}

bool Corpus::keep(const std::string& file, const std::string& text) const {
  const fs::path path = fs::path(folder_) / file;
  if (fs::exists(path)) return false;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    throw WorldError(path.parent_path().string() + ": cannot make this folder: " + error.message());
  write_file(path.string(), text);
  return true;
}

}  // namespace lockstep
