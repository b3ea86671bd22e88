#include <algorithm>
#include <sstream>

#include "scenarios/reference/reference.h"
#include "scenarios/reference/tables.h"

namespace lockstep {
namespace {

// Whether a list of keys and sections names the key or a section around it.
bool names(const char* list, const std::string& path) {
  std::istringstream words(list);
  for (std::string word; words >> word;) {
    if (path == word || path.rfind(word + ".", 0) == 0) return true;
  }
  return false;
}

std::string joined(const std::vector<std::string>& items, const char* separator) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

std::string default_of(const Key& key) {
  return key.path == "schema" || key.path == "name" ? "required"
                                                    : key.write(Scenario(), Style::yaml);
}

// A bar ends a cell even inside backticks.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string markdown_row(const Key& key) {
  const std::string value = default_of(key);
  return "| `" + key.path + "` | " + key.reference.kind + " | " +
         (value == "required" ? value : "`" + value + "`") + " | " + cell(key.reference.range) +
         " | " + key.meaning.unit + " | " + cell(key.meaning.text.text) + " | " +
         joined(rules_about(key), ", ") + " |\n";
}

std::string text_entry(const Key& key) {
  std::string out = key.path + ": " + default_of(key) + "\n    " + key.meaning.text.text + "\n    ";
  out += key.reference.kind + ", " + key.reference.range;
  if (*key.meaning.unit != '\0') out += "; unit: " + std::string(key.meaning.unit);
  const std::vector<std::string> rules = rules_about(key);
  if (!rules.empty()) out += "; rules: " + joined(rules, " ");
  return out + "\n";
}

}  // namespace

std::vector<std::string> rules_about(const Key& key) {
  std::vector<std::string> ids;
  for (const Rule& rule : all_rules()) {
    if (names(rule.keys.text, key.path)) ids.emplace_back(rule.id.text);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string key_reference(Form form) {
  std::string out = form == Form::text
                        ? ""
                        : "| key | type | default | range | unit | meaning | rules |\n"
                          "|---|---|---|---|---|---|---|\n";
  for (const Key& key : schema()) out += form == Form::text ? text_entry(key) : markdown_row(key);
  return out;
}

}  // namespace lockstep
