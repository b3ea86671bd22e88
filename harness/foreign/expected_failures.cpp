#include "harness/foreign/expected_failures.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/foreign/relation.h"
#include "scenarios/schema/schema.h"
#include "scenarios/syntax/node.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

json::value json_of(const Node& node) {
  if (node.kind == Node::Kind::sequence) {
    json::array list;
    for (const Node& item : node.items) list.push_back(json_of(item));
    return list;
  }
  if (node.kind == Node::Kind::mapping) {
    json::object object;
    for (std::size_t i = 0; i < node.keys.size(); ++i)
      object[node.keys[i].text] = json_of(node.items[i]);
    return object;
  }
  if (node.kind != Node::Kind::scalar) return nullptr;
  if (node.quoted) return json::string(node.text);
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (const auto whole = parse_int(node.text)) return *whole;
  if (const auto number = parse_number(node.text)) return *number;
  return json::string(node.text);
}

bool is_number(const json::value& value) { return value.is_int64() || value.is_double(); }

bool is_same(const json::value& value, const json::value& wanted) {
  if (is_number(value) && is_number(wanted))
    return value.to_number<double>() == wanted.to_number<double>();
  return value == wanted;
}

bool is_within(const json::value& value, const json::object& range) {
  if (!is_number(value)) return false;
  const auto bound = [&](const char* name, double otherwise) {
    const json::value* const given = range.if_contains(name);
    return given != nullptr && is_number(*given) ? given->to_number<double>() : otherwise;
  };
  const double number = value.to_number<double>();
  return number >= bound("min", number) && number <= bound("max", number);
}

// A value: equal; a set: contains it; a list: any of it; {min, max}: within.
bool matches_value(const json::value& value, const json::value& wanted) {
  if (wanted.is_object()) return is_within(value, wanted.as_object());
  if (wanted.is_array()) {
    return is_same(value, wanted) ||
           std::any_of(wanted.as_array().begin(), wanted.as_array().end(),
                       [&](const json::value& one) { return matches_value(value, one); });
  }
  if (value.is_array()) {
    return std::any_of(value.as_array().begin(), value.as_array().end(),
                       [&](const json::value& one) { return is_same(one, wanted); });
  }
  return is_same(value, wanted);
}

// One entry of the file.
class Reader {
 public:
  Reader(const std::string& path, const Node& node) : path_(path), node_(node) {
    if (node.kind != Node::Kind::mapping) refuse("an entry is a mapping");
    for (std::size_t i = 0; i < node.keys.size(); ++i) read(node.keys[i].text, node.items[i]);
    if (one_.relation.empty()) refuse("an entry needs `relation`");
    if (one_.issue.empty()) refuse("an entry needs `issue`, a text for reports");
    one_.line = node.place.line;
  }
  ExpectedFailure take() { return std::move(one_); }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw RequestError(path_ + ":" + std::to_string(node_.place.line) + ": " + what);
  }

  void read(const std::string& key, const Node& value) {
    const bool scalar = value.kind == Node::Kind::scalar;
    const bool mapping = value.kind == Node::Kind::mapping;
    if (key == "relation" && scalar) {
      try {
        one_.relation = asked_relation(value.text).relation->id;
      } catch (const RequestError& error) {
        refuse(error.what());
      }
    } else if (key == "issue" && scalar) {
      one_.issue = value.text;
    } else if (key == "when" && (mapping || value.kind == Node::Kind::null)) {
      if (mapping) one_.when = json_of(value).as_object();
      for (const json::key_value_pair& item : one_.when) {
        if (find_key(std::string(item.key())) == nullptr)
          refuse("when: there is no key " + std::string(item.key()));
      }
    } else if (key == "engine" && mapping) {
      for (std::size_t i = 0; i < value.keys.size(); ++i)
        one_.engine[value.keys[i].text] = value.items[i].text;
    } else if (key == "tensors" && scalar) {
      one_.tensors = value.text;
    } else if (key == "always" && scalar && (value.text == "true" || value.text == "false")) {
      one_.always = value.text == "true";
    } else {
      refuse("`" + key + "` is no key of an entry, or its value has another type");
    }
  }

  const std::string& path_;
  const Node& node_;
  ExpectedFailure one_;
};

bool matches_case(const ExpectedFailure& expected, const Scenario& scenario, const Hello& hello) {
  for (const auto& [name, pattern] : expected.engine) {
    const auto said = hello.engine.find(name);
    if (said == hello.engine.end() || !matches(pattern, said->second)) return false;
  }
  return std::all_of(
      expected.when.begin(), expected.when.end(), [&](const json::key_value_pair& item) {
        const Key* const key = find_key(std::string(item.key()));
        return matches_value(json::parse(key->write(scenario, Style::json)), item.value());
      });
}

bool matches_violation(const ExpectedFailure& expected, const RelationOutcome& one) {
  const std::string tensor = one.first_difference ? one.first_difference->tensor : "";
  return one.verdict == Verdict::violated && matches(expected.tensors, tensor);
}

}  // namespace

ExpectedFailures::ExpectedFailures(const std::string& path) : path_(path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RequestError(path + ": the file of expected failures cannot be read");
  std::ostringstream bytes;
  bytes << file.rdbuf();
  Faults faults(path);
  const std::optional<Node> root =
      check_bytes(bytes.str(), faults) ? parse_document(bytes.str(), faults) : std::nullopt;
  if (!faults.empty()) throw RequestError(faults.take().front().text());
  if (!root || root->kind != Node::Kind::mapping)
    throw RequestError(path + ": the file needs `version: 1` and `expected`");
  bool has_version = false;
  for (std::size_t i = 0; i < root->keys.size(); ++i) {
    const std::string& key = root->keys[i].text;
    const Node& value = root->items[i];
    if (key == "version" && value.text == "1") {
      has_version = true;
    } else if (key == "expected" && value.kind == Node::Kind::sequence) {
      for (const Node& entry : value.items) list_.push_back(Reader(path_, entry).take());
    } else {
      throw RequestError(path + ": `" + key + "` is no key of this file, or has another value");
    }
  }
  if (!has_version) throw RequestError(path + ": the file needs `version: 1`");
}

void ExpectedFailures::take(EngineResult& result, const Hello& hello) {
  for (ExpectedFailure& expected : list_) {
    if (!matches_case(expected, result.scenario, hello)) continue;
    for (RelationOutcome& one : result.relations) {
      if (one.id != expected.relation || one.verdict == Verdict::skipped) continue;
      ++expected.applied;
      if (!matches_violation(expected, one)) continue;
      ++expected.failed;
      one.issue = expected.issue;
    }
  }
}

bool ExpectedFailures::expects(const Scenario& scenario, const RelationOutcome& one,
                               const Hello& hello) const {
  return std::any_of(list_.begin(), list_.end(), [&](const ExpectedFailure& expected) {
    return one.id == expected.relation && matches_case(expected, scenario, hello) &&
           matches_violation(expected, one);
  });
}

std::string ExpectedFailures::text(const ExpectedFailure& one) const {
  return path_ + ":" + std::to_string(one.line) + ": " + one.relation + " (" + one.issue + ")";
}

std::vector<std::string> ExpectedFailures::unmet() const {
  std::vector<std::string> list;
  for (const ExpectedFailure& one : list_) {
    if (one.applied == 0) continue;
    if (one.failed == 0)
      list.push_back("expected failure holds: " + text(one) + ", in " +
                     std::to_string(one.applied) + " cases");
    else if (one.always && one.failed < one.applied)
      list.push_back("expected failure holds in some cases: " + text(one) + ", failed " +
                     std::to_string(one.failed) + " of " + std::to_string(one.applied));
  }
  return list;
}

std::vector<std::string> ExpectedFailures::unused() const {
  std::vector<std::string> list;
  for (const ExpectedFailure& one : list_) {
    if (one.applied == 0) list.push_back("no case of this command matches " + text(one));
  }
  return list;
}

}  // namespace lockstep::foreign
