// Schema 1, declared once: reading, the canonical form, YAML writing and the search for the nearest key all follow it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "scenarios/schema/types.h"

namespace lockstep {

struct Key {
  std::string path;  // "model.attention.heads"
  std::string type;  // What it takes, in words.
  std::function<void(const Item&, Scenario&)> read;
  std::function<std::string(const Scenario&, Style)> write;
  // Whether the canonical form has the key: of the data's keys only those that its kind reads.
  std::function<bool(const Scenario&)> counts = [](const Scenario&) { return true; };
};

// In the order of the document.
const std::vector<Key>& schema();
const Key* find_key(const std::string& path);
// Whether keys begin with `path` and a point.
bool is_section(const std::string& path);
// Names of the keys and sections right inside a section; "" is the file itself.
const std::vector<std::string>& names_in(const std::string& section);

// Keys whose default follows from other keys.
const std::vector<std::string>& computed_keys();
// Computes those that are not in `given`.
void fill_defaults(Scenario& scenario, const std::set<std::string>& given);

// Ranges that end at another key's value. Keys that were not given are held to them where they are read.
struct DependentRange {
  std::string key, range, nearest;
};
std::vector<DependentRange> out_of_dependent_range(const Scenario& scenario, const std::set<std::string>& given);

}  // namespace lockstep
