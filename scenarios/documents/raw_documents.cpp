#include "scenarios/documents/raw_documents.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "scenarios/documents/md5.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMostFaults = 20;

struct Unreadable {
  DataFault fault;
};

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

std::ifstream open(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Unreadable{{path, 0, "may not be opened"}};
  return stream;
}

std::string bytes_of(const std::string& path) {
  std::ifstream stream = open(path);
  std::string bytes, part(1 << 16, '\0');
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())), stream.gcount() > 0) {
    bytes.append(part, 0, stream.gcount());
  }
  if (stream.bad()) throw Unreadable{{path, 0, "cannot be read to its end"}};
  return bytes;
}

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

  std::vector<DataFault> run() {
    try {
      if (scenario_.data.kind == DataKind::text) walk_folder(data_path(scenario_));
      if (scenario_.data.kind == DataKind::jsonl) walk_records(data_path(scenario_));
    } catch (const Unreadable& unreadable) {
      faults_.push_back(unreadable.fault);
    }
    return std::move(faults_);
  }

 private:
  bool is_full() const { return faults_.size() >= kMostFaults; }

  void walk_folder(const std::string& folder) {
    require_kind_of_file(folder, fs::file_type::directory);
    const std::vector<std::string> files = files_in(folder);
    if (files.empty()) faults_.push_back({folder, 0, "holds no document"});
    for (const std::string& file : files) {
      if (is_full()) return;
      read_text((fs::path(folder) / file).string());
    }
  }

  // One that cannot be read does not hide the others' faults.
  void read_text(const std::string& path) {
    try {
      const std::string bytes = bytes_of(path);
      const auto nul = std::find(bytes.begin(), bytes.end(), '\0');
      if (nul == bytes.end()) return take_(whole_text(bytes));
      faults_.push_back(
          {path, static_cast<int>(std::count(bytes.begin(), nul, '\n')) + 1, "has a NUL byte"});
    } catch (const Unreadable& unreadable) {
      faults_.push_back(unreadable.fault);
    }
  }

  void walk_records(const std::string& path) {
    require_kind_of_file(path, fs::file_type::regular);
    std::ifstream stream = open(path);
    std::string line;
    int number = 0;
    while (!is_full() && std::getline(stream, line)) {
      ++number;
      if (line.find('\0') != std::string::npos) {
        faults_.push_back({path, number, "has a NUL byte"});
        continue;
      }
      Record record = from_line(line, scenario_.data.mask.roles);
      if (record.lacks.empty()) {
        take_(std::move(record.document));
      } else {
        faults_.push_back({path, number, record.lacks});
      }
    }
    if (stream.bad()) throw Unreadable{{path, number, "cannot be read to its end"}};
    if (number == 0) faults_.push_back({path, 0, "holds no document"});
  }

  const Scenario& scenario_;
  const std::function<void(RawDocument)>& take_;
  std::vector<DataFault> faults_;
};

[[noreturn]] void fail(const DataFault& fault) {
  throw std::runtime_error(fault.file + (fault.line == 0 ? "" : ":" + std::to_string(fault.line)) +
                           ": " + fault.what);
}

std::string md5_of_file(const std::string& path) {
  std::ifstream stream = open(path);
  std::string part(1 << 16, '\0');
  Md5 sum;
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())), stream.gcount() > 0) {
    sum.add(std::string_view(part).substr(0, stream.gcount()));
  }
  if (stream.bad()) throw Unreadable{{path, 0, "cannot be read to its end"}};
  return sum.hex();
}

}  // namespace

std::string data_path(const Scenario& scenario) {
  return (fs::path(scenario.folder) / scenario.data.path).string();
}

std::vector<DataFault> for_each_document(const Scenario& scenario,
                                         const std::function<void(RawDocument)>& take) {
  return Walk(scenario, take).run();
}

std::vector<RawDocument> read_raw_documents(const Scenario& scenario) {
  std::vector<RawDocument> documents;
  const std::vector<DataFault> faults = for_each_document(
      scenario, [&](RawDocument document) { documents.push_back(std::move(document)); });
  if (!faults.empty()) fail(faults.front());
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
