// Every fault that can be planted in the kernels and the engine: what kind of bug it stands for,
// and which judges may report it. A fault is at one `faulty("name", right, wrong)` of kernels/ or
// engine/, or an alias of a fault at the device (harness/inject/fault_aliases.h); `fault_place`
// finds that line when lockstep is built.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The conditions under which a fault shows; any of them together.
enum FaultTrait : unsigned {
  kFixturesFirst = 1,  // Scenarios cannot show it, or seldom.
  kRemovesOrder = 2,   // It only takes an edge away.
  kNeedsExperts = 4,   // Only scenarios with experts show it.
  kNoScenario = 8,     // It concerns the guard or a file, and only their own tests show it.
  kNeedsShards = 16,   // Only scenarios that shard, or have several ranks, show it.
};

struct FaultRow {
  // In the tables of oracle and checker: the begin of names, of which the longest match wins.
  std::string_view name;
  std::string_view bug_class;  // One of the classes of bugs that were found elsewhere.
  // Judges that may name the fault, and words of which the report must hold one: "gradient: bias;
  // hazard: loader". The words name the first op or tensor that the error reaches. "bits" is any
  // comparison of values.
  std::string_view reasons;
  unsigned traits = 0;  // FaultTrait.
  bool has(FaultTrait trait) const { return (traits & trait) != 0; }
};

inline constexpr std::string_view kLeak = "cross-document leak", kPadding = "padding leak",
                                  kIndex = "numerics", kOrder = "dtype/accumulate", kRandom = "RNG",
                                  kLoss = "loss normalisation/mask",
                                  kRace = "stream race/missing event",
                                  kStale = "stale-input/metadata", kReuse = "buffer reuse/lifetime",
                                  kAddress = "stale-address", kCapture = "capture-legality",
                                  kFallback = "allocator fallback",
                                  kWarmup = "warmup/first-step only", kResume = "checkpoint/resume",
                                  kTeardown = "teardown/recapture", kLaunch = "hook order",
                                  kHost = "host-sync", kExperts = "experts", kSharding = "sharding",
                                  kCost = "cost that changes no bit", kSize = "rare size",
                                  kJudge = "judge";

inline constexpr std::array kBugClasses{
    kLeak,  kPadding, kIndex,    kOrder,    kRandom, kLoss,   kRace,     kStale,
    kReuse, kAddress, kCapture,  kFallback, kWarmup, kResume, kTeardown, kLaunch,
    kHost,  kExperts, kSharding, kCost,     kSize,   kJudge};

std::span<const FaultRow> kernel_fault_rows();  // In the order of the ops.
std::span<const FaultRow> engine_fault_rows();  // Sorted by name.

std::vector<std::string> kernel_faults();
std::vector<std::string> engine_faults();
std::vector<std::string> sharding_faults();  // The names of engine faults that need shards.

// The file where the fault is planted, "" for an unknown name.
std::string_view fault_place(std::string_view name);

}  // namespace lockstep
