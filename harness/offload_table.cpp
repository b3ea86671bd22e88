#include "harness/offload_table.h"

#include <cstdio>
#include <map>
#include <sstream>

#include "scenarios/reader.h"
#include "scenarios/schema_words.h"

namespace lockstep {
namespace {

constexpr double kLinkBytesPerSecond = 55e9;  // Pinned copies of an H200, either way; docs/measurements.md.

std::string microseconds(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", static_cast<double>(bytes) / kLinkBytesPerSecond * 1e6);
  return text;
}

std::string place(const OffloadPlan& plan, int segment) {
  return segment == plan.segments ? "the head" : "segment " + std::to_string(segment);
}

void write_group(std::ostringstream& out, const OffloadPlan& plan, const OffloadGroup& group) {
  char line[256];
  const std::string name = word(group.module), after = place(plan, group.leaves);
  const std::string before = place(plan, group.returns), used = place(plan, group.used);
  const std::string time = microseconds(group.bytes());
  std::snprintf(line, sizeof line, "  %5d  %-13s %12lld B  ", group.layer, name.c_str(),
                static_cast<long long>(group.bytes()));
  out << line;
  if (group.stays) {
    out << "stays\n";
    return;
  }
  std::snprintf(line, sizeof line, "leaves after %-11s  comes back from %-11s  for %-11s  %10s each way\n",
                after.c_str(), before.c_str(), used.c_str(), time.c_str());
  out << line;
}

std::map<OffloadModule, std::int64_t> totals(const OffloadPlan& plan) {
  std::map<OffloadModule, std::int64_t> sums;
  for (const OffloadGroup& group : plan.groups) sums[group.module] += group.stays ? 0 : group.bytes();
  return sums;
}

}  // namespace

std::string offload_table(const Scenario& scenario, const OffloadPlan& plan) {
  std::ostringstream out;
  out << "\noffload plan of rank 0 (" << to_text(scenario.numerics.front()) << "), fixed before the first step; "
      << plan.groups.size() << " groups in order of execution\n  layer  module\n";
  for (const OffloadGroup& group : plan.groups) write_group(out, plan, group);
  out << "  bytes of a microbatch by module, rank 0:";
  for (const auto& [module, bytes] : totals(plan)) out << " " << word(module) << " " << bytes;
  out << "\n  total " << plan.bytes() << " bytes to the host and back, " << microseconds(plan.bytes())
      << " each way at 55 GB/s, hidden where the segments beside compute as long\n  device: " << plan.slots
      << " slots give up " << plan.slots * plan.bytes() << " bytes and share " << plan.device_bytes() << ": "
      << plan.saved_bytes() << " saved; prefetch distance " << plan.prefetch << " segment\n";
  return out.str();
}

boost::json::object offload_json(const OffloadPlan& plan) {
  boost::json::array groups;
  for (const OffloadGroup& group : plan.groups) {
    boost::json::array tensors;
    for (const OffloadTensor& tensor : group.tensors) {
      tensors.push_back(boost::json::object{{"name", tensor.name}, {"bytes", tensor.bytes}});
    }
    groups.push_back(boost::json::object{{"rank", 0},
                                         {"layer", group.layer},
                                         {"module", word(group.module)},
                                         {"bytes", group.bytes()},
                                         {"stays", group.stays},
                                         {"leaves_after", group.leaves},
                                         {"returns_before", group.returns},
                                         {"read_by", group.used},
                                         {"tensors", std::move(tensors)}});
  }
  boost::json::object modules;
  for (const auto& [module, bytes] : totals(plan)) modules[word(module)] = bytes;
  return {{"segments", plan.segments}, {"prefetch", plan.prefetch},           {"slots", plan.slots},
          {"bytes", plan.bytes()},     {"device_bytes", plan.device_bytes()}, {"saved_bytes", plan.saved_bytes()},
          {"modules", modules},        {"groups", std::move(groups)}};
}

}  // namespace lockstep
