#include "scenarios/schema/judge.h"

#include <algorithm>
#include <vector>

#include "scenarios/syntax/schema_text.h"

namespace lockstep {

Judge::Judge()
    : Name{{"none",       "activation", "metadata", "loss",     "gradient", "norm",
            "weights",    "evaluation", "vacuous",  "counters", "costs",    "documents",
            "hazard",     "checker",    "schedule", "capture",  "address",  "ledger",
            "collective", "contract",   "effect",   "oracle",   "refusal",  "expectation",
            "elsewhere",  "watchdog",   "crash",    "device",   "memory",   "exception",
            "state",      "disk",       "relation", "rows",     "ranks",    "nan",
            "failed",     "protocol",   "unstable"}} {}

std::optional<std::string> Judge::read(const Item& item) const {
  const std::optional<std::string> text = read_scalar_text(item, name());
  if (!text || std::find(names.begin(), names.end(), *text) != names.end()) return text;
  std::string all;
  for (const std::string& one : names) all += (all.empty() ? "" : ", ") + one;
  item.faults.add("Y06", item.node.place, item.key, quoted(*text) + " is no judge",
                  "judges are " + all, nearest_word(*text, names));
  return std::nullopt;
}

}  // namespace lockstep
