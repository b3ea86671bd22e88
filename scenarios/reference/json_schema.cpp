#include "scenarios/reference/reference.h"
#include "scenarios/reference/tables.h"

namespace lockstep {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string description(const Key& key) {
  std::string text = key.meaning.text.text;
  if (*key.meaning.unit != '\0') text += " [" + std::string(key.meaning.unit) + "]";
  std::string rules;
  for (const std::string& rule : rules_about(key)) rules += " " + rule;
  return rules.empty() ? text : text + ". Rules:" + rules;
}

// The type's own members, after which the key's default and description follow.
std::string of_key(const Key& key) {
  std::string out = key.reference.json.substr(0, key.reference.json.size() - 1);
  if (key.path != "schema" && key.path != "name")
    out += ",\"default\":" + key.write(Scenario(), Style::json);
  return out + ",\"description\":" + write_text(description(key), Style::json) + "}";
}

std::string of_section(const std::string& section) {
  Fields members;
  for (const std::string& name : names_in(section)) {
    const std::string path = section.empty() ? name : section + "." + name;
    const Key* key = find_key(path);
    members.emplace_back(name, key != nullptr ? of_key(*key) : of_section(path));
  }
  Fields fields{{"type", "\"object\""}, {"additionalProperties", "false"}};
  if (section.empty()) {
    fields.insert(fields.begin(), {{"$schema", "\"http://json-schema.org/draft-07/schema#\""},
                                   {"title", "\"lockstep scenario, schema 1\""}});
    fields.emplace_back("required", "[\"schema\",\"name\"]");
  }
  fields.emplace_back("properties", write_record(members, Style::json));
  return write_record(fields, Style::json);
}

}  // namespace

std::string json_schema() { return of_section(""); }

}  // namespace lockstep
