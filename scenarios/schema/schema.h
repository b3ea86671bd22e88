// Schema 1, declared once: reading, the canonical form, YAML writing and the search for the nearest
// key all follow it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scenarios/schema/types.h"
#include "scenarios/syntax/documented.h"

namespace lockstep {

// The effect of a key, and the unit of its values, if any. The reference requires both.
struct Meaning {
  Documented text;
  const char* unit = "";
};

struct Key {
  template <class Type>
  Key(const char* called, Meaning said, const Type& takes)
      : path(called), meaning(said), type(takes.name()), reference(takes.text()) {}

  std::string path;  // "model.attention.heads"
  Meaning meaning;
  std::string type;    // As messages name it.
  TypeText reference;  // As the reference and editors see it.
  std::function<void(const Scenario& from, Scenario& to)> copy = [](const Scenario&, Scenario&) {};
  std::function<void(const Item&, Scenario&)> read;
  std::function<std::string(const Scenario&, Style)> write;
  // Whether the canonical form has the key: keys of the data that its kind does not read are left
  // out.
  std::function<bool(const Scenario&)> counts = [](const Scenario&) { return true; };
  // Whether the canonical form leaves the key out because it came later and is at its default.
  std::function<bool(const Scenario&)> is_left_out = [](const Scenario&) { return false; };
};

// In the order of the document.
const std::vector<Key>& schema();
const Key* find_key(const std::string& path);
// The path of the key that stands for an option or a configuration field of Megatron-LM; "" if none
// does.
std::string key_from_megatron(const std::string& name);
// Advice for a word of Megatron-LM that has no word here; "" if nothing is known.
std::string advice_from_megatron(const std::string& key, const std::string& word);
// The names that it knows, with their keys.
const std::map<std::string, std::string>& megatron_keys();
// Whether keys begin with `path` and a point.
bool is_section(const std::string& path);
// Names of the keys and sections directly inside a section; "" is the file itself.
const std::vector<std::string>& names_in(const std::string& section);

// Keys whose default follows from other keys.
const std::vector<std::string>& computed_keys();
// Computes the keys that are not in `given`.
void fill_defaults(Scenario& scenario, const std::set<std::string>& given);

// Ranges that end at another key's value. Keys that were not given are held to them where they are
// read.
struct DependentRange {
  std::string key, range, nearest;
};
std::vector<DependentRange> out_of_dependent_range(const Scenario& scenario,
                                                   const std::set<std::string>& given);

}  // namespace lockstep
