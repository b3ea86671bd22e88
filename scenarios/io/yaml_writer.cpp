// A scenario as YAML for people: only keys that differ from their defaults, or all of them.
#include <algorithm>

#include "scenarios/io/reader.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

bool is_always_written(const Key& key) {
  return key.path == "schema" || key.path == "name" || key.path == "numerics";
}

// The keys that `wanted` lets pass, each below the sections that it lies in.
template <class Wanted>
std::string written(const Scenario& scenario, Wanted wanted) {
  std::string out;
  std::string open;  // The sections that the last line lies in, each with a point after it.
  for (const Key& key : schema()) {
    const std::string value = key.write(scenario, Style::yaml);
    if (!wanted(key, value)) continue;
    std::string indent;
    std::size_t begin = 0;
    for (std::size_t point; (point = key.path.find('.', begin)) != std::string::npos;
         begin = point + 1) {
      if (open.compare(0, point + 1, key.path, 0, point + 1) != 0) {
        out += indent + key.path.substr(begin, point - begin) + ":\n";
      }
      indent += "  ";
    }
    out += indent + key.path.substr(begin) + ": " + value + "\n";
    open = key.path.substr(0, begin);
  }
  return out;
}

}  // namespace

std::string to_yaml(const Scenario& scenario) {
  const Scenario plain;
  Scenario computed = scenario;
  fill_defaults(computed, {});
  return written(scenario, [&](const Key& key, const std::string& value) {
    const std::vector<std::string>& late = computed_keys();
    const bool is_computed = std::find(late.begin(), late.end(), key.path) != late.end();
    const bool differs = value != key.write(is_computed ? computed : plain, Style::yaml);
    return is_always_written(key) || (differs && key.counts(scenario));
  });
}

std::string to_full_yaml(const Scenario& scenario) {
  return written(scenario,
                 [&](const Key& key, const std::string&) { return key.counts(scenario); });
}

}  // namespace lockstep
