#include "scenarios/io/reader.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "scenarios/documents/histogram.h"
#include "scenarios/documents/layout.h"
#include "scenarios/documents/raw_documents.h"
#include "scenarios/io/stage.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/schema.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Reads a section and what is inside of it; notes which keys were given.
class SectionReader {
 public:
  SectionReader(Scenario& scenario, Faults& faults) : scenario_(scenario), faults_(faults) {}

  void read(const Node& mapping, const std::string& section) {
    for (std::size_t i = 0; i < mapping.keys.size(); ++i) {
      const Node& name = mapping.keys[i];
      const std::string path = section.empty() ? name.text : section + "." + name.text;
      if (name.kind != Node::Kind::scalar || name.text.empty() ||
          name.text.find('.') != std::string::npos) {
        unknown(name, section, path);
      } else if (const Key* key = find_key(path)) {
        read_key(*key, mapping.items[i]);
      } else if (is_section(path)) {
        read_section(mapping.items[i], path);
      } else {
        unknown(name, section, path);
      }
    }
  }

  const std::set<std::string>& given() const { return given_; }

 private:
  void read_key(const Key& key, const Node& value) {
    given_.insert(key.path);
    const std::size_t before = faults_.size();
    key.read({value, key.path, faults_}, scenario_);
    // If a type cannot guess the intended value, the default is near enough; `name` has none.
    static const Scenario plain = [] {
      Scenario scenario;
      scenario.name = "a-name";
      return scenario;
    }();
    for (std::size_t i = before; i < faults_.size(); ++i) {
      ScenarioError& error = faults_.all()[i];
      // Not for words: following such advice would ask for something else.
      const bool words = key.reference.kind.find("word") != std::string::npos;
      const std::string text = text_at(value, error.key, key.path);
      // Nor where a digit says that a number was meant, which the default is not.
      const bool a_number =
          key.reference.kind == "int" || key.reference.kind == "int or list of int";
      const bool meant = a_number && text.find_first_of("0123456789") != std::string::npos;
      if (error.nearest.empty() && error.key == key.path && !words && !meant)
        error.nearest = key.write(plain, Style::yaml);
      const std::string advice =
          error.nearest.empty() ? advice_from_megatron(key.path, text) : std::string();
      if (!advice.empty()) error.why += "; " + advice;
    }
  }

  // The scalar that an error is about: the value of its key, or an item of it.
  static std::string text_at(const Node& value, const std::string& place, const std::string& key) {
    const Node* node = &value;
    if (place.size() > key.size() + 2 && place[key.size()] == '[') {
      const auto index = parse_int(place.substr(key.size() + 1, place.find(']') - key.size() - 1));
      if (!index || *index < 0 || *index >= std::ssize(value.items)) return "";
      node = &value.items[*index];
    }
    return node->kind == Node::Kind::scalar ? node->text : "";
  }

  void read_section(const Node& value, const std::string& path) {
    if (value.kind == Node::Kind::mapping) return read(value, path);
    Item{value, path, faults_}.wrong_type("a mapping with keys such as " + names_in(path).front(),
                                          "{}");
  }

  void unknown(const Node& name, const std::string& section, const std::string& path) {
    const bool is_text = name.kind == Node::Kind::scalar && !name.text.empty();
    // Y02 has it already.
    if (name.kind == Node::Kind::refused || (name.text == "<<" && !name.quoted)) return;
    const std::string near = faults_.is_full("Y03") ? "" : nearest_key(name.text, section);
    faults_.add("Y03", name.place,
                is_text           ? quoted_if_long(path)
                : section.empty() ? "(file)"
                                  : section,
                is_text ? "is no key of schema 1" : "has a key that is no text",
                faults_.is_full("Y03") ? "" : what_it_takes(name.text, near, section), near);
  }

  // What the nearest key takes, or which keys there are.
  static std::string what_it_takes(const std::string& name, const std::string& near,
                                   const std::string& section) {
    const std::string inside = section.empty() ? near : section + "." + near;
    for (const std::string& path : {inside, near}) {
      if (const Key* key = find_key(path)) return meaning_of(*key);
      if (!path.empty() && is_section(path)) return keys_of(path);
    }
    const std::string elsewhere = sections_with(near.empty() ? name : near);
    return elsewhere.empty() ? keys_of(section) : elsewhere;
  }

  // "cuda_graph and offload have it", of a name that is a key in few other sections.
  static std::string sections_with(const std::string& name) {
    std::vector<std::string> found;
    for (const Key& key : schema()) {
      if (key.path.ends_with("." + name))
        found.push_back(key.path.substr(0, key.path.size() - name.size() - 1));
    }
    if (found.size() < 2 || found.size() > 3) return "";
    std::string text;
    for (const std::string& section : found) text += (text.empty() ? "" : ", ") + section;
    return "sections " + text + " have a key of that name";
  }

  // "model.hidden takes int 1..16384, in features: width of the residual stream"
  static std::string meaning_of(const Key& key) {
    const std::string unit = key.meaning.unit, text = key.meaning.text.text;
    // The first clause: what follows are exceptions and defaults, which the reference has.
    const std::size_t end = std::min({text.find("; "), text.find(". "), text.find(" (")});
    return key.path + " takes " + key.type + (unit.empty() ? "" : ", in " + unit) + ": " +
           text.substr(0, end);
  }

  static std::string keys_of(const std::string& section) {
    std::string names;
    for (const std::string& name : names_in(section)) names += (names.empty() ? "" : ", ") + name;
    return (section.empty() ? "a file has the keys " : "section " + section + " has the keys ") +
           names;
  }

  // A name in this section, or the path of the key that somebody meant who comes from Megatron-LM,
  // or of the one key elsewhere that has this name.
  static std::string nearest_key(const std::string& name, const std::string& section) {
    const std::string theirs = key_from_megatron(name);
    if (!theirs.empty()) return theirs;
    const std::string near = nearest_name(name, names_in(section));
    if (!near.empty()) return near;
    std::vector<std::string> same;
    for (const Key& key : schema()) {
      if (key.path.ends_with("." + name)) same.push_back(key.path);
    }
    return same.size() == 1 ? same.front() : "";
  }

  static std::string quoted_if_long(const std::string& path) {
    return path.size() <= 100 ? path : path.substr(0, 100) + "...";
  }

  Scenario& scenario_;
  Faults& faults_;
  std::set<std::string> given_;
};

// Whether the file lies in a folder `scenarios` or below one.
bool is_in_library(const std::string& file) {
  std::error_code failed;
  fs::path path = fs::absolute(file, failed);
  if (failed) path = file;
  for (const fs::path& part : path.lexically_normal().parent_path()) {
    if (part == "scenarios") return true;
  }
  return false;
}

void require_keys(const std::set<std::string>& given, const std::string& file, Faults& faults) {
  const auto need = [&](const char* key, const char* why, const char* nearest) {
    if (given.count(key) == 0) faults.add("Y07", {}, key, "is missing", why, nearest);
  };
  need("schema", "it says what the other keys mean", "schema: 1");
  need("name", "reports call the scenario by it", "name: a-name");
  if (is_in_library(file)) {
    need("numerics", "a file of the library says in which precisions it runs", "numerics: [fp32]");
  }
}

void check_dependent_ranges(const Scenario& scenario, const std::set<std::string>& given,
                            const Node& root, Faults& faults) {
  for (const DependentRange& range : out_of_dependent_range(scenario, given)) {
    if (faults.hit(range.key)) continue;
    const std::string value = find_key(range.key)->write(scenario, Style::yaml);
    const std::string what =
        (given.count(range.key) ? "`" : "the default `") + value + "` is out of range";
    faults.add("Y06", find_place(root, range.key), range.key, what,
               "with the other keys it takes " + range.range, range.nearest);
  }
}

// A file at data.path in place of the pairs of data.distribution.histogram: from here on the
// scenario has the pairs and needs no file.
void read_histogram(Scenario& scenario, const std::set<std::string>& given, const Node& root,
                    Faults& faults) {
  Scenario::Data& data = scenario.data;
  const bool wanted =
      data.kind == DataKind::distribution && data.distribution.shape == Shape::histogram;
  if (!wanted || given.count("data.path") == 0 || faults.hit("data")) return;
  const auto refuse = [&](const char* key, const std::string& what, const std::string& nearest) {
    faults.add("Y08", find_place(root, key), key, what, "packs are drawn from it", nearest);
  };
  if (given.count("data.distribution.histogram") != 0)
    return refuse("data.path", "names a histogram, and data.distribution.histogram is another", "");
  const HistogramFile file = read_histogram_file(data_path(scenario));
  for (const DataFault& fault : file.faults) {
    const std::string line = fault.line == 0 ? "" : ":" + std::to_string(fault.line);
    refuse("data.path", shown(fault.file) + line + ": " + shown(fault.what), "");
  }
  if (!file.faults.empty()) return;
  if (!data.digest.empty() && data.digest != file.digest) {
    refuse("data.digest",
           "the bytes at " + shown(data_path(scenario)) + " have the digest " + file.digest,
           file.digest);
  }
  for (const auto& [documents, packs] : file.histogram)
    data.distribution.histogram.push_back({documents, packs});
  data.path = Scenario::Data().path;
  data.digest.clear();
}

// The digest of the documents; "" where there are none, or they have faults.
std::string check_data(const Scenario& scenario, const Node& root, Faults& faults) {
  if (!reads_bytes(scenario.data) || faults.hit("data")) return "";  // The path is unknown then.
  const DataFindings found = for_each_document(scenario, [](RawDocument) {});
  for (const DataFault& fault : found.faults) {
    const std::string line = fault.line == 0 ? "" : ":" + std::to_string(fault.line);
    faults.add("Y08", find_place(root, "data.path"), "data.path",
               shown(fault.file) + line + ": " + shown(fault.what),
               "the documents are what is trained on");
  }
  if (!found.faults.empty()) return "";
  if (!scenario.data.digest.empty() && found.digest != scenario.data.digest) {
    faults.add("Y08", find_place(root, "data.digest"), "data.digest",
               "the bytes at " + shown(data_path(scenario)) + " have the digest " + found.digest,
               "they are not those that were meant", found.digest);
  }
  return found.digest;
}

// The canonical form is a scenario file too, which a token carries, so it must not be larger than a
// file may be. It writes a character with six at most and adds the defaults, so short texts need
// not be looked at.
void check_canonical_size(const Scenario& scenario, const std::string& text, Faults& faults) {
  if (!faults.empty() || text.size() < kMaxFileBytes / 8) return;
  const std::size_t size = canonical_form(scenario).size();
  if (size <= kMaxFileBytes) return;
  faults.add("Y01", {}, "(file)",
             "has a canonical form of " + std::to_string(size) + " bytes, over " +
                 std::to_string(kMaxFileBytes),
             "no token could carry it; documents belong at data.path");
}

// The bytes of a stream, one more than legal at most, so that too large a file shows. Nothing where
// it cannot be read to its end.
std::optional<std::string> read_all(std::istream& stream) {
  std::string bytes(kMaxFileBytes + 1, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (stream.bad()) return std::nullopt;
  bytes.resize(stream.gcount());
  return bytes;
}

// All bytes of a regular file of at most 1 MiB, or of standard input for "-"; reports what keeps it
// from being read.
std::optional<std::string> read_bytes(const std::string& path, Faults& faults) {
  const auto refuse = [&](const std::string& what) {
    faults.add("Y01", {}, "(file)", what, "it cannot be read");
    return std::nullopt;
  };
  const char* cut_short = "cannot be read to its end";
  if (path == "-") {
    if (std::optional<std::string> bytes = read_all(std::cin)) return bytes;
    return refuse(cut_short);
  }
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (status.type() == fs::file_type::not_found) return refuse("does not exist");
  if (failed) return refuse(failed.message());
  if (status.type() == fs::file_type::directory) return refuse("is a folder");
  if (status.type() != fs::file_type::regular) return refuse("is no regular file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return refuse("may not be opened");
  if (std::optional<std::string> bytes = read_all(stream)) return bytes;
  return refuse(cut_short);
}

// Later stages find keys, not places.
std::vector<ScenarioError> placed(std::vector<ScenarioError> errors, const std::string& file,
                                  const Node& root) {
  for (ScenarioError& error : errors) {
    const FilePlace place = find_place(root, error.key);
    error.file = file;
    error.line = place.line;
    error.column = place.column;
  }
  return errors;
}

}  // namespace

ReadStage read_stage(const std::string& text, const std::string& file) {
  Faults faults(file);
  ReadStage stage;
  stage.scenario.folder = fs::path(file).parent_path().string();
  if (check_bytes(text, faults)) stage.root = parse_document(text, faults);
  if (stage.root) {
    SectionReader reader(stage.scenario, faults);
    if (stage.root->kind == Node::Kind::mapping) {
      reader.read(*stage.root, "");
    } else {
      Item{*stage.root, "(file)", faults}.wrong_type("a mapping with the keys of schema 1",
                                                     "schema: 1");
    }
    require_keys(reader.given(), file, faults);
    fill_defaults(stage.scenario, reader.given());
    read_histogram(stage.scenario, reader.given(), *stage.root, faults);
    check_dependent_ranges(stage.scenario, reader.given(), *stage.root, faults);
    stage.data_digest = check_data(stage.scenario, *stage.root, faults);
    check_canonical_size(stage.scenario, text, faults);
    stage.keys = reader.given();
  }
  stage.errors = faults.take();
  return stage;
}

ReadResult read_scenario_text(const std::string& text, const std::string& file) {
  ReadStage stage = read_stage(text, file);
  ReadResult result{std::move(stage.scenario), std::move(stage.errors),
                    std::move(stage.data_digest), std::move(stage.keys)};
  if (result.ok()) result.errors = placed(check_legality(result.scenario), file, *stage.root);
  if (result.ok()) result.errors = placed(check_built(result.scenario), file, *stage.root);
  quote_source(result.errors, text);
  return result;
}

ReadResult read_scenario_file(const std::string& path) {
  Faults faults(path);
  const std::optional<std::string> bytes = read_bytes(path, faults);
  if (bytes) return read_scenario_text(*bytes, path);
  ReadResult result;
  result.errors = faults.take();
  return result;
}

}  // namespace lockstep
