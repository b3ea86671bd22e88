#include "harness/run/memory_check.h"

#include <algorithm>
#include <cstdio>

#include "harness/base/errors.h"
#include "harness/base/machine_memory.h"
#include "harness/expect/run_estimate.h"

namespace lockstep {
namespace {

std::string gigabytes(double bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f GB", bytes / 1e9);
  return text;
}

double memory_needed(const RunEstimate& estimate, const MemoryUse& use) {
  return (use.engine_on_host ? estimate.engine(use.ranks) : estimate.documents) +
         (use.reference ? estimate.reference : 0);
}

}  // namespace

double memory_needed(const Scenario& scenario, const MemoryUse& use) {
  return memory_needed(estimate_run(scenario), use);
}

MemoryUse memory_use(const Scenario& scenario, const std::string& device) {
  return {.engine_on_host = device == "sim",
          .reference = true,
          .ranks = static_cast<double>(scenario.parallel.data)};
}

std::string lack_of_memory(const Scenario& scenario, const MemoryUse& use) {
  const MachineMemory memory = machine_memory();
  const RunEstimate estimate = estimate_run(scenario);
  const double needed = memory_needed(estimate, use);
  if (needed <= static_cast<double>(memory.bytes)) return "";
  const double largest = std::max({estimate.state, estimate.activations, estimate.documents});
  const char* keys =
      largest == estimate.state ? "model.pattern, model.hidden, model.vocab, model.mlp.hidden, "
                                  "model.moe.experts or model.moe.hidden"
      : largest == estimate.activations
          ? "data.pack_length, training.in_flight, model.pattern or model.hidden"
          : "data.pack_length, data.documents, training.microbatches or parallel.data";
  return "it takes at least " + gigabytes(needed) + " of memory, and " +
         gigabytes(static_cast<double>(memory.bytes)) + " are there (" + memory.source +
         "); lower " + keys;
}

void require_memory(const Scenario& scenario, const MemoryUse& use) {
  const std::string lack = lack_of_memory(scenario, use);
  if (!lack.empty()) throw WorldError(scenario.name + ": " + lack + ", or give --any-size");
}

}  // namespace lockstep
