// A scenario as YAML for people: only what differs from the defaults.
#include <algorithm>

#include "scenarios/io/reader.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

bool is_always_written(const Key& key) { return key.path == "schema" || key.path == "name" || key.path == "numerics"; }

}  // namespace

std::string to_yaml(const Scenario& scenario) {
  const Scenario plain;
  Scenario computed = scenario;
  fill_defaults(computed, {});
  std::string out;
  std::string open;  // The sections that the last line lies in, each with a point after it.
  for (const Key& key : schema()) {
    const std::vector<std::string>& late = computed_keys();
    const bool is_computed = std::find(late.begin(), late.end(), key.path) != late.end();
    const std::string value = key.write(scenario, Style::yaml);
    const bool differs = value != key.write(is_computed ? computed : plain, Style::yaml);
    if (!is_always_written(key) && !(differs && key.counts(scenario))) continue;
    std::string indent;
    std::size_t begin = 0;
    for (std::size_t point; (point = key.path.find('.', begin)) != std::string::npos; begin = point + 1) {
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

}  // namespace lockstep
