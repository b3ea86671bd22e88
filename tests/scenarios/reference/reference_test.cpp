// The reference of the schema: every rule and key has its row, every example is refused by its
// rule, and an editor that checks a file by the JSON Schema agrees with the reader.
#include "scenarios/reference/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "scenarios/reference/tables.h"
#include "tests/scenarios/random_scenario.h"
#include "tests/scenarios/reading.h"
#include "tests/support/tree.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const fs::path kLibrary = fs::path(root_path()) / "scenarios/library";

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// A small validator: the parts of draft 7 that json_schema() uses. Anything else fails the test.
class Validator {
 public:
  bool accepts(const Node& node, const json::object& schema) {
    return std::all_of(schema.begin(), schema.end(), [&](const auto& member) {
      return holds(node, member.key(), member.value(), schema);
    });
  }

 private:
  static bool is_number(const Node& node) {
    static const std::regex number(R"(-?(0|[0-9]+)(\.[0-9]+)?([eE][-+]?[0-9]+)?)");
    return node.kind == Node::Kind::scalar && !node.quoted && std::regex_match(node.text, number);
  }
  static bool is_bool(const Node& node) {
    return node.kind == Node::Kind::scalar && !node.quoted &&
           (node.text == "true" || node.text == "false");
  }
  static bool is_text(const Node& node) {
    return node.kind == Node::Kind::scalar && !is_bool(node) && !is_number(node);
  }
  static bool is_of_type(const Node& node, std::string_view type) {
    if (type == "object") return node.kind == Node::Kind::mapping;
    if (type == "array") return node.kind == Node::Kind::sequence;
    if (type == "boolean") return is_bool(node);
    if (type == "number") return is_number(node);
    if (type == "integer")
      return is_number(node) && node.text.find_first_of(".eE") == std::string::npos;
    return type == "string" && is_text(node);
  }
  static bool is_value(const Node& node, const json::value& value) {
    return value.is_string() ? is_text(node) && node.text == value.as_string()
                             : node.text == json::serialize(value);
  }
  bool holds_for_object(const Node& node, const json::object& members, const json::object& schema) {
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const json::value* member = members.if_contains(node.keys[i].text);
      if (member == nullptr && schema.contains("additionalProperties")) return false;
      if (member != nullptr && !accepts(node.items[i], member->as_object())) return false;
    }
    return true;
  }
  bool holds(const Node& node, std::string_view word, const json::value& value,
             const json::object& schema) {
    static const std::set<std::string_view> silent{"$schema", "title", "description", "default",
                                                   "additionalProperties"};
    const auto bound = [&] { return value.to_number<double>(); };
    const auto number = [&] { return std::strtod(node.text.c_str(), nullptr); };
    const auto is_in = [&](const json::value& one) { return is_value(node, one); };
    if (silent.count(word) != 0) return true;
    if (word == "type") return is_of_type(node, value.as_string());
    if (word == "const") return is_value(node, value);
    if (word == "enum") return std::ranges::any_of(value.as_array(), is_in);
    if (word == "anyOf") {
      return std::ranges::any_of(value.as_array(),
                                 [&](const auto& one) { return accepts(node, one.as_object()); });
    }
    if (word == "properties") return holds_for_object(node, value.as_object(), schema);
    if (word == "required") {
      return std::ranges::all_of(value.as_array(), [&](const json::value& name) {
        return std::ranges::any_of(node.keys,
                                   [&](const Node& key) { return key.text == name.as_string(); });
      });
    }
    if (word == "minProperties") return std::ssize(node.keys) >= value.as_int64();
    if (word == "items") {
      return std::ranges::all_of(node.items,
                                 [&](const Node& one) { return accepts(one, value.as_object()); });
    }
    if (word == "minItems") return std::ssize(node.items) >= value.as_int64();
    if (word == "maxItems") return std::ssize(node.items) <= value.as_int64();
    if (word == "uniqueItems") {
      std::set<std::string> texts;
      return std::ranges::all_of(node.items,
                                 [&](const Node& one) { return texts.insert(one.text).second; });
    }
    if (word == "pattern")
      return std::regex_search(node.text, std::regex(std::string(value.as_string())));
    if (word == "minLength") return std::ssize(node.text) >= value.as_int64();
    if (word == "maxLength") return std::ssize(node.text) <= value.as_int64();
    // A type that does not hold is told by `type`; bounds are those of numbers.
    if (!is_number(node)) return true;
    if (word == "minimum") return number() >= bound();
    if (word == "maximum") return number() <= bound();
    if (word == "exclusiveMinimum") return number() > bound();
    if (word == "exclusiveMaximum") return number() < bound();
    if (word == "multipleOf") return std::fmod(number(), bound()) == 0;
    ADD_FAILURE() << "the validator does not know " << word;
    return false;
  }
};

bool editor_accepts(const std::string& text) {
  static const json::object schema = json::parse(json_schema()).as_object();
  Faults faults("file.yaml");
  const std::optional<Node> root = parse_document(text, faults);
  return root && faults.empty() && Validator().accepts(*root, schema);
}

std::vector<fs::path> library_files() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kLibrary)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  return files;
}

std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Rules, OfTheReferenceAreAllThatAFileMayExpect) {
  std::set<std::string> ids;
  for (const Rule& rule : all_rules()) ids.insert(rule.id.text);
  std::set<std::string> names(rule_names().begin(), rule_names().end());
  names.erase("none");
  EXPECT_EQ(ids, names);
}

TEST(Rules, RefuseTheirOwnExamplesAndNothingElseDoes) {
  const std::vector<Rule> rules = all_rules();
  ASSERT_GE(rules.size(), 49u);
  for (const Rule& rule : rules) {
    const std::vector<ScenarioError> errors = errors_of_example(rule);
    ASSERT_FALSE(errors.empty()) << rule.id.text << " accepts " << rule.illegal.text;
    for (const ScenarioError& error : errors) EXPECT_EQ(error.rule, rule.id.text) << error.text();
    const std::string text = rule.text.text;
    const std::string what = errors.front().what;
    if (rule.id.text[0] == 'L' && std::string(rule.id.text) != "L00") {
      EXPECT_EQ(what.substr(0, text.size()), text);
    }
  }
}

TEST(Rules, NameKeysAndSectionsOfTheSchema) {
  for (const Rule& rule : all_rules()) {
    for (const std::string& word : words_in(rule.keys.text)) {
      if (word.front() == '(') continue;  // "(any)", "(file)": all of them, or none.
      EXPECT_TRUE(find_key(word) != nullptr || is_section(word)) << rule.id.text << ": " << word;
    }
  }
}

// Rules about data of the kinds text and jsonl need files; all else must be refused where the rule
// says it looks.
TEST(Rules, AreAboutTheKeysThatTheyRefuse) {
  for (const Rule& rule : all_rules()) {
    for (const ScenarioError& error : errors_of_example(rule)) {
      const std::string keys = rule.keys.text;
      if (keys.front() == '(') continue;
      const std::string path = error.key.substr(0, error.key.find('['));
      const auto is_about = [&](const std::string& word) {
        return path == word || path.rfind(word + ".", 0) == 0;
      };
      EXPECT_TRUE(std::ranges::any_of(words_in(keys), is_about)) << error.text();
    }
  }
}

TEST(Keys, AreMarkedWithTheRulesThatLookAtThem) {
  using testing::Contains;
  using testing::ElementsAre;
  EXPECT_THAT(rules_about(*find_key("model.attention.kv_heads")), ElementsAre("L01"));
  EXPECT_THAT(rules_about(*find_key("data.mask.prefix")), ElementsAre("L12"));
  EXPECT_THAT(rules_about(*find_key("offload.modules")), Contains("L26"));
  EXPECT_THAT(key_reference(Form::text),
              testing::HasSubstr("model.hidden: 32\n    width of the residual stream\n"));
  EXPECT_EQ(rule_reference(Form::text, "L57"), "");
}

TEST(Keys, AreCopiedOneByOne) {
  Scenario from =
      read_stage(with_head("fsdp: {unit: [1, 1]}\ntraining: {optimizer: {betas: [0.5, 0.25]}}\n"),
                 "f")
          .scenario;
  from.description = "here";
  Scenario to;
  for (const Key& key : schema()) key.copy(from, to);
  EXPECT_EQ(canonical_form(to), canonical_form(from));
  EXPECT_EQ(to.description, "here");
  Scenario one;
  find_key("training.optimizer.betas")->copy(from, one);
  EXPECT_EQ(one.training.optimizer.beta2, 0.25);
  EXPECT_FALSE(one.fsdp.unit_is_list);
}

TEST(JsonSchema, AcceptsEveryFileOfTheLibraryThatReads) {
  const std::vector<fs::path> files = library_files();
  ASSERT_GE(files.size(), 100u);
  for (const fs::path& file : files) {
    const std::string text = content(file);
    EXPECT_EQ(editor_accepts(text), read_stage(text, file.string()).errors.empty()) << file;
  }
}

TEST(JsonSchema, RefusesWhatOneKeyAloneMakesIllegal) {
  EXPECT_TRUE(editor_accepts("{schema: 1, name: a}"));
  EXPECT_TRUE(editor_accepts(
      "{schema: 1, name: a, offload: {max_inflight: unlimited}, fsdp: {unit: [1, 2]}}"));
  for (const char* text : {"{name: a}",
                           "{schema: 2, name: a}",
                           "{schema: 1, name: A}",
                           "{schema: 1, name: a, x: 1}",
                           "{schema: 1, name: a, model: {hidden: 0}}",
                           "{schema: 1, name: a, model: {hidden: 32.5}}",
                           "{schema: 1, name: a, model: {attention: {head_dim: 3}}}",
                           "{schema: 1, name: a, model: {dropout: 0.95}}",
                           "{schema: 1, name: a, model: {moe: {capacity_factor: 0}}}",
                           "{schema: 1, name: a, model: {norm_eps: 0}}",
                           "{schema: 1, name: a, numerics: []}",
                           "{schema: 1, name: a, numerics: [fp32, fp32]}",
                           "{schema: 1, name: a, numerics: [fp64]}",
                           "{schema: 1, name: a, data: {documents: [[1]]}}",
                           "{schema: 1, name: a, fsdp: {unit: 0}}",
                           "{schema: 1, name: a, offload: {max_inflight: some}}",
                           "{schema: 1, name: a, checker: {delays: [{stream: d2h}]}}",
                           "{schema: 1, name: a, checker: {hazards: yes}}",
                           "{schema: 1, name: a, expect: {counters: {no_such: 1}}}",
                           "{schema: 1, name: a, expect: {counters: {ops: {}}}}",
                           "{schema: 1, name: a, expect: {error: L57}}",
                           "{schema: 1, name: a, training: {optimizer: {betas: [0.9, 1]}}}"}) {
    EXPECT_FALSE(editor_accepts(text)) << text;
    EXPECT_FALSE(read_stage(text, "file.yaml").errors.empty()) << text;
  }
}

TEST(JsonSchema, AcceptsRandomScenarios) {
  const TemporaryFolder folder;
  write_documents(folder);
  EXPECT_TRUE(rc::check([&] {
    const Scenario scenario = *random_scenario(folder.path());
    RC_ASSERT(editor_accepts(canonical_form(scenario)));
    RC_ASSERT(editor_accepts(to_full_yaml(scenario)));
  }));
}

TEST(FullYaml, ReadsBackAsTheSameCanonicalForm) {
  const auto again = [](const Scenario& scenario, const std::string& file) {
    const ReadStage stage = read_stage(to_full_yaml(scenario), file);
    return stage.errors.empty() ? canonical_form(stage.scenario) : stage.errors.front().text();
  };
  for (const fs::path& file : library_files()) {
    const ReadStage stage = read_stage(content(file), file.string());
    if (!stage.errors.empty()) continue;
    EXPECT_EQ(again(stage.scenario, file.string()), canonical_form(stage.scenario)) << file;
  }
  const TemporaryFolder folder;
  write_documents(folder);
  EXPECT_TRUE(rc::check([&] {
    const Scenario scenario = *random_scenario(folder.path());
    RC_ASSERT(again(scenario, folder / "a.yaml") == canonical_form(scenario));
  }));
}

}  // namespace
}  // namespace lockstep
