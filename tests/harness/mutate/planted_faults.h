// The faults that can be planted, and those of them that change nothing which a run can show.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/inject/fault_table.h"
#include "oracle/oracle.h"

namespace lockstep {

// Why a fault changes nothing, and what it spares, as a golden row counts it ("calls waits");
// `spares` is empty where the device is asked for the same calls.
struct Equivalent {
  std::string why, spares;
};

// By name. They must survive every judge of results, and nothing but `spares` may differ from a row
// in costs.txt (planted_test.cpp), or this list is wrong.
inline const std::map<std::string, Equivalent>& equivalent_faults() {
  // A step and an evaluation end with the host reading the losses, which drains the compute stream
  // and with it every copy it waited for: when the next documents are staged and loaded, nothing of
  // the step before is under way. checker_engine_test leaves the same edges out where the host runs
  // ahead, and the checker finds each.
  static const char* const kDrained = "the host reads the losses first, which drains the stream";
  static const char *const kWait = "calls waits", *const kHostWait = "host_waits for_event";
  static const std::map<std::string, Equivalent> list{
      {"load-keeps-the-step-begun",
       {"each trainer of a scenario loads before its first step; the probe of `lockstep mutate` "
        "goes back to its own checkpoint",
        ""}},
      {"device-flushes-subnormals", {"only the guard asks for the fingerprint: harness.guard", ""}},
      {"expert-bias-compares-in-float", {"no run counts to 2^24: kernels.any_op does", ""}},
      {"initialize-cuts-its-block-number",
       {"no parameter of a scenario has 2^24 elements: kernels.any_op begins there", ""}},
      {"tensor-core-drops-a-product",
       {"only a calibration asks the tensor core by itself: harness.calibrate, harness.guard", ""}},
      {"loader-ignores-consumed-event", {kDrained, kWait}},
      {"loader-ignores-state-consumed-event", {kDrained, kWait}},
      {"staging-rewritten-before-its-copy", {kDrained, kHostWait}},
      {"state-staging-rewritten-before-its-copy", {kDrained, kHostWait}}};
  return list;
}

// The words of `--with` without which no random scenario can show the fault; "" for none.
inline std::string needs_outside(const std::string& name) {
  const bool in_processes =
      name.starts_with("a-rank-captures-") || name == "captured-calls-in-no-order" ||
      name == "a-collective-ends-with-an-empty-round" ||
      name == "captured-exchange-of-fewer-rows" || name == "captured-gradient-waits-for-inputs" ||
      name == "exchange-of-a-region-launched-alone" ||
      name == "captured-output-of-the-microbatch-before" ||
      name == "graph-beside-a-transfer-under-way" || name == "slots-released-in-the-graph-alone";
  const bool by_cudnn = name == "max-seqlen-of-the-first-captured-pack" ||
                        name == "attention-workspace-over-gradients" ||
                        name.starts_with("attention-tables-");
  if (by_cudnn) return "cudnn";
  return in_processes ? "processes" : "";
}

// Why no random scenario can show a fault, although the library does; empty if some can.
inline std::string not_in_random_scenarios(const std::string& name) {
  if (name.ends_with("-twice") && name != "reduce-runs-twice" && name != "replay-runs-twice")
    return "random scenarios have no row of costs";
  if (name == "inputs-have-room-for-two-packs" || name == "output-kept-until-its-backward-pass")
    return "random scenarios have no row of costs";
  if (name == "graph-key-count-in-8-bits")
    return "steps of random scenarios have at most 8 microbatches";
  if (name == "moe-capacity-in-another-order")
    return "the factors of random scenarios are the same in any order";
  if (name == "evaluation-graph-without-its-count" || name == "part-of-a-step-in-cut-groups" ||
      name == "parts-in-shared-memory-run-in-groups" ||
      name == "offload-keeps-tensors-of-the-smallest-size" || name == "activation-gate-saturates" ||
      name == "scan-long-time-steps-are-linear")
    return "random scenarios hardly ever draw it";
  return "";
}

struct ListedFault {
  std::string option;  // For the command line: --plant or --mutate-oracle.
  std::string name;
};

// Kernels, engine, oracle; without the equivalent ones.
inline std::vector<ListedFault> faults_that_show() {
  std::vector<ListedFault> list;
  const auto add = [&](const char* option, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!equivalent_faults().contains(name)) list.push_back({option, name});
    }
  };
  add("--plant", kernel_faults());
  add("--plant", engine_faults());
  add("--mutate-oracle", oracle::Oracle::mutations());
  return list;
}

}  // namespace lockstep
