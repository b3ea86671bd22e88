#include "scenarios/documents/raw_documents.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "scenarios/documents/input_file.h"
#include "scenarios/documents/md5.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMostFaults = 20;

// That ends the reading of all files.
struct TooMuch : Unreadable {};

// The regular files below a folder, by the bytes of their path in it. Links are not followed.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failed;
  fs::recursive_directory_iterator walk(folder, fs::directory_options::none, failed);
  for (; !failed && walk != fs::recursive_directory_iterator(); walk.increment(failed)) {
    if (walk->symlink_status().type() == fs::file_type::regular) {
      files.push_back(walk->path().lexically_relative(folder).generic_string());
    }
  }
  if (failed) throw Unreadable{{folder, 0, "cannot be read: " + failed.message()}};
  std::sort(files.begin(), files.end());  // char_traits<char> compares as unsigned bytes.
  return files;
}

// More than any set that this harness is for: all documents lie in memory, on every rank.
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
// A record is parsed as a whole.
constexpr std::size_t kMostRecordBytes = std::size_t{64} << 20;

// The folder or file that `path` names must be what the kind reads.
void require_kind_of_file(const std::string& path, fs::file_type wanted) {
  std::error_code failed;
  const fs::file_type type = fs::status(path, failed).type();
  if (type == wanted) return;
  const char* folder = "is no folder; kind text reads a folder of text files";
  const char* file = "is no regular file; kind jsonl reads a file with a record in every line";
  const std::string what = type == fs::file_type::not_found ? "does not exist"
                           : type == fs::file_type::none    ? "cannot be read: " + failed.message()
                           : wanted == fs::file_type::directory ? folder
                                                                : file;
  throw Unreadable{{path, 0, what}};
}

// Appends bytes; those that may be targets extend the last span where they touch it.
void append(RawDocument& document, std::string_view bytes, bool are_targets) {
  const std::size_t begin = document.bytes.size();
  document.bytes += bytes;
  if (!are_targets || bytes.empty()) return;
  if (!document.targets.empty() && document.targets.back().end == begin) {
    document.targets.back().end = document.bytes.size();
  } else {
    document.targets.push_back({begin, document.bytes.size()});
  }
}

RawDocument whole_text(std::string_view bytes) {
  RawDocument document;
  append(document, bytes, true);
  return document;
}

const json::string* text_field(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_string();
}

// A record's document, or what it lacks.
struct Record {
  RawDocument document;
  std::string lacks;
};

Record from_messages(const json::array& messages, const std::vector<std::string>& roles) {
  Record record;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json::object* message = messages[i].if_object();
    const json::string* role = message == nullptr ? nullptr : text_field(*message, "role");
    const json::string* content = message == nullptr ? nullptr : text_field(*message, "content");
    if (role == nullptr || content == nullptr) {
      record.lacks = "message " + std::to_string(i) + " lacks a text `role` or `content`";
      return record;
    }
    const std::string_view name(role->data(), role->size());
    append(record.document, std::string(name) + ": ", false);
    append(record.document, {content->data(), content->size()},
           std::find(roles.begin(), roles.end(), name) != roles.end());
    append(record.document, "\n", false);
  }
  return record;
}

Record from_line(const std::string& line, const std::vector<std::string>& roles) {
  json::error_code failed;
  json::parse_options options;
  options.max_depth = 64;
  const json::value value = json::parse(line, failed, {}, options);
  if (failed) return {{}, "is no JSON record: " + failed.message()};
  const json::object* object = value.if_object();
  if (object == nullptr) return {{}, "is no JSON object"};
  const json::value* messages = object->if_contains("messages");
  if (object->contains("text") && messages != nullptr)
    return {{}, "has both `text` and `messages`"};
  if (const json::string* text = text_field(*object, "text"))
    return {whole_text({text->data(), text->size()}), ""};
  if (messages != nullptr && messages->is_array())
    return from_messages(messages->get_array(), roles);
  return {{}, "lacks a text `text` or a list `messages`"};
}

class Walk {
 public:
  Walk(const Scenario& scenario, const std::function<void(RawDocument)>& take)
      : scenario_(scenario), take_(take) {}

  // The digest is of what `take` was given, and means nothing where there are faults.
  DataFindings run() {
    try {
      if (scenario_.data.kind == DataKind::text) walk_folder(data_path(scenario_));
      if (scenario_.data.kind == DataKind::jsonl) walk_records(data_path(scenario_));
    } catch (const Unreadable& unreadable) {
      faults_.push_back(unreadable.fault);
    }
    return {std::move(faults_), std::move(digest_)};
  }

 private:
  bool is_full() const { return faults_.size() >= kMostFaults; }

  std::string_view next_of(InputFile& file, const std::string& path) {
    const std::string_view piece = file.next();
    bytes_ += std::ssize(piece);
    if (bytes_ > kMostBytes) throw TooMuch{{{path, 0, "more than 4 GiB of documents up to here"}}};
    return piece;
  }

  void walk_folder(const std::string& folder) {
    require_kind_of_file(folder, fs::file_type::directory);
    const std::vector<std::string> files = files_in(folder);
    if (files.empty()) faults_.push_back({folder, 0, "holds no document"});
    Md5 sum;
    for (const std::string& file : files) {
      if (is_full()) return;
      sum.add(read_text((fs::path(folder) / file).string()) + "  " + file + "\n");
    }
    digest_ = sum.hex();
  }

  // One that cannot be read does not hide the others' faults. Its digest; "" where it has faults.
  std::string read_text(const std::string& path) {
    try {
      InputFile file(path);
      std::string bytes;
      for (std::string_view piece; !(piece = next_of(file, path)).empty();) {
        bytes += piece;
        const std::size_t nul = bytes.find('\0', bytes.size() - piece.size());
        if (nul == std::string::npos) continue;
        const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(nul);
        faults_.push_back(
            {path, static_cast<int>(std::count(bytes.begin(), end, '\n')) + 1, "has a NUL byte"});
        return "";
      }
      take_(whole_text(bytes));
      return file.digest();
    } catch (const TooMuch&) {
      throw;
    } catch (const Unreadable& unreadable) {
      faults_.push_back(unreadable.fault);
      return "";
    }
  }

  void walk_records(const std::string& path) {
    require_kind_of_file(path, fs::file_type::regular);
    InputFile file(path);
    Line line;
    for (std::string_view piece; !is_full() && !(piece = next_of(file, path)).empty();) {
      while (!piece.empty() && !is_full()) {
        const std::size_t end = std::min(piece.find('\n'), piece.size());
        append(line, piece.substr(0, end), path);
        if (end < piece.size()) take_record(line, path);
        piece.remove_prefix(std::min(end + 1, piece.size()));
      }
    }
    if (line.begun && !is_full()) take_record(line, path);
    if (line.number == 0) faults_.push_back({path, 0, "holds no document"});
    digest_ = file.digest();
  }

  // A record as far as it was read.
  struct Line {
    std::string text;
    int number = 0;  // Counts the records before it.
    std::size_t bytes = 0;
    bool begun = false, has_nul = false;
  };
  // A line without an end, such as that of a sparse file, must not take the machine's memory before
  // it is refused.
  static void append(Line& line, std::string_view bytes, const std::string& path) {
    line.begun = true;
    line.has_nul = line.has_nul || bytes.find('\0') != std::string_view::npos;
    line.bytes += bytes.size();
    if (line.bytes > kMostRecordBytes) {
      throw Unreadable{
          {path, line.number + 1,
           line.has_nul ? "has a NUL byte" : "is longer than 64 MiB, the most of a record"}};
    }
    if (!line.has_nul) line.text += bytes;
  }
  void take_record(Line& line, const std::string& path) {
    ++line.number;
    Record record;
    if (!line.has_nul) record = from_line(line.text, scenario_.data.mask.roles);
    if (line.has_nul) record.lacks = "has a NUL byte";
    if (record.lacks.empty()) {
      take_(std::move(record.document));
    } else {
      faults_.push_back({path, line.number, record.lacks});
    }
    line.text.clear();
    line.bytes = 0;
    line.begun = line.has_nul = false;
  }

  const Scenario& scenario_;
  const std::function<void(RawDocument)>& take_;
  std::vector<DataFault> faults_;
  std::string digest_;
  std::int64_t bytes_ = 0;  // Counts the bytes of all files so far.
};

[[noreturn]] void fail(const DataFault& fault) {
  throw std::runtime_error(fault.file + (fault.line == 0 ? "" : ":" + std::to_string(fault.line)) +
                           ": " + fault.what);
}

std::string md5_of_file(const std::string& path) {
  InputFile file(path);
  while (!file.next().empty()) {
  }
  return file.digest();
}

}  // namespace

std::string data_path(const Scenario& scenario) {
  return (fs::path(scenario.folder) / scenario.data.path).string();
}

DataFindings for_each_document(const Scenario& scenario,
                               const std::function<void(RawDocument)>& take) {
  return Walk(scenario, take).run();
}

std::vector<RawDocument> read_raw_documents(const Scenario& scenario) {
  std::vector<RawDocument> documents;
  const DataFindings found = for_each_document(
      scenario, [&](RawDocument document) { documents.push_back(std::move(document)); });
  if (!found.faults.empty()) fail(found.faults.front());
  if (!scenario.data.digest.empty() && scenario.data.digest != found.digest) {
    fail({data_path(scenario), 0,
          "has changed since it was first read: its digest was " + scenario.data.digest +
              " and is " + found.digest});
  }
  return documents;
}

std::string data_digest(const Scenario& scenario) {
  try {
    const std::string path = data_path(scenario);
    if (scenario.data.kind == DataKind::jsonl) return md5_of_file(path);
    Md5 sum;
    for (const std::string& file : files_in(path)) {
      sum.add(md5_of_file((fs::path(path) / file).string()) + "  " + file + "\n");
    }
    return sum.hex();
  } catch (const Unreadable& unreadable) {
    fail(unreadable.fault);
  }
}

}  // namespace lockstep
