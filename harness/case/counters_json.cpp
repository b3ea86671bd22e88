#include "harness/case/counters_json.h"

#include <stdexcept>

namespace lockstep {

boost::json::object to_json(const Counters& counters) {
  boost::json::object object;
  for (const auto& [counter, value] : counters) object[to_text(counter)] = value;
  return object;
}

Counters counters_from_json(const boost::json::object& object) {
  Counters counters;
  for (const auto& [name, value] : object) {
    const std::optional<Counter> counter = counter_from_text(name);
    if (!counter) throw std::invalid_argument("there is no counter " + std::string(name));
    counters[*counter] = value.to_number<std::int64_t>();
  }
  return counters;
}

}  // namespace lockstep
