// The faults that can be planted, and those of them that change nothing which a run can show.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/faults.h"
#include "kernels/fault.h"
#include "oracle/oracle.h"
#include "scenarios/reader.h"

namespace lockstep {

// By name, with the reason. They must survive (planted_test.cpp), or this list is wrong.
inline const std::map<std::string, std::string>& equivalent_faults() {
  // A step and an evaluation end with the host reading the losses, which drains the compute stream and with it every
  // copy it waited for: when the next documents are staged and loaded, nothing of the step before is under way.
  // checker_engine_test leaves the same edges out where the host runs ahead, and the checker finds each.
  static const char* const kDrained = "the host reads the losses first, which drains the stream";
  static const char* const kResume = "no scenario reads a checkpoint; the probe of `lockstep mutate` does";
  static const std::map<std::string, std::string> list{
      {"checkpoint-forgets-moments", kResume},
      {"checkpoint-forgets-the-counts-so-far", kResume},
      {"checkpoint-forgets-the-gradients-so-far", kResume},
      {"checkpoint-forgets-the-step", kResume},
      {"checkpoint-leaves-bf16-weights", kResume},
      {"checkpoint-overwrites-the-valid-one", "no scenario fails to write a checkpoint: engine.fsdp_checkpoint"},
      {"compute-ignores-step-state-event", "the state's copy precedes the microbatches' on the same stream"},
      {"device-flushes-subnormals", "only the guard asks for the fingerprint: harness.guard"},
      {"tensor-core-drops-a-product",
       "only a calibration asks the tensor core by itself: harness.calibrate, harness.guard"},
      {"loader-ignores-consumed-event", kDrained},
      {"loader-ignores-state-consumed-event", kDrained},
      {"staging-rewritten-before-its-copy", kDrained},
      {"state-staging-rewritten-before-its-copy", kDrained}};
  return list;
}

// The oracle's. Those of its experts show in no scenario until the engine has experts.
inline std::vector<std::string> oracle_mutations_that_show() {
  std::vector<std::string> names = oracle::Oracle::mutations();
  const std::vector<Feature> all = features();
  const bool experts = std::any_of(all.begin(), all.end(), [](const Feature& feature) {
    return feature.key == "model.pattern: E" && feature.built;
  });
  if (!experts) std::erase_if(names, [](const std::string& name) { return name.starts_with("moe-"); });
  return names;
}

// Faults of layers of experts show nothing before those layers are built.
inline bool is_of_experts(const std::string& name) {
  for (const char* begin : {"moe-", "router-", "expert-", "dispatch-", "combine-", "count-pairs-"}) {
    if (name.rfind(begin, 0) == 0) return true;
  }
  return name == "evaluation-counts-pairs";
}
// Faults of sharding show nothing before that is built.
inline bool is_of_sharding(const std::string& name) {
  const std::vector<std::string> names = sharding_faults();
  return std::find(names.begin(), names.end(), name) != names.end();
}
inline bool is_about_something_built(const std::string& name) {
  const std::vector<Feature> all = features();
  const auto sharding =
      std::find_if(all.begin(), all.end(), [](const Feature& one) { return one.key == "fsdp.strategy"; });
  if (sharding != all.end() && !sharding->built && is_of_sharding(name)) return false;
  const auto experts =
      std::find_if(all.begin(), all.end(), [](const Feature& one) { return one.key == "model.pattern: E"; });
  return experts == all.end() || experts->built || !is_of_experts(name);
}

// Why no random scenario can show a fault, although the library does; empty if some can.
inline std::string not_in_random_scenarios(const std::string& name) {
  if (name.starts_with("a-rank-captures-") || name == "captured-calls-in-no-order") {
    return "random scenarios have no processes";
  }
  if (name.starts_with("attention-tables-") || name == "attention-workspace-over-gradients")
    return "random scenarios do not ask for cuDNN's attention";
  return "";
}

struct PlantedFault {
  std::string option;  // Of the command line: --plant or --mutate-oracle.
  std::string name;
};

// Kernels, engine, oracle; without the equivalent ones, and those of what is not built.
inline std::vector<PlantedFault> faults_that_show() {
  std::vector<PlantedFault> list;
  const auto add = [&](const char* option, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!equivalent_faults().contains(name) && is_about_something_built(name)) list.push_back({option, name});
    }
  };
  add("--plant", kernel_faults());
  add("--plant", engine_faults());
  add("--mutate-oracle", oracle_mutations_that_show());
  return list;
}

}  // namespace lockstep
