// The canonical form: one line of JSON, every key in the order of the schema.
#include <algorithm>

#include "scenarios/io/reader.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

std::vector<std::string> sections_of(const std::string& path) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  for (std::size_t point; (point = path.find('.', begin)) != std::string::npos; begin = point + 1) {
    names.push_back(path.substr(begin, point - begin));
  }
  return names;
}

// Values without effect must not make equal scenarios differ.
Scenario without_idle_values(Scenario scenario) {
  scenario.description.clear();
  Scenario::Data::Distribution& drawn = scenario.data.distribution;
  if (drawn.shape != Shape::lognormal)
    drawn.median = std::min(drawn.median, scenario.data.pack_length);
  for (Scenario::Resume& resume : scenario.training.resume_at) {
    if (resume.data == scenario.parallel.data) resume.data = 0;
  }
  return scenario;
}

}  // namespace

std::string canonical_form(const Scenario& scenario) {
  const Scenario meant = without_idle_values(scenario);
  std::string out = "{";
  std::vector<std::string> open;
  for (const Key& key : schema()) {
    if (!key.counts(meant) || key.is_left_out(meant)) continue;
    const std::vector<std::string> sections = sections_of(key.path);
    const auto same =
        std::mismatch(open.begin(), open.end(), sections.begin(), sections.end()).first -
        open.begin();
    out.append(open.size() - static_cast<std::size_t>(same), '}');
    if (out.back() != '{') out += ',';
    for (std::size_t i = same; i < sections.size(); ++i) out += "\"" + sections[i] + "\":{";
    out += "\"" + key.path.substr(key.path.rfind('.') + 1) + "\":" + key.write(meant, Style::json);
    open = sections;
  }
  return out.append(open.size() + 1, '}');
}

}  // namespace lockstep
