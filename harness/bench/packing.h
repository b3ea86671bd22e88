// What the capacity of a pack costs: the time of each op that works on documents, and of a step, by
// capacity, while the packs stay the same.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// The number of documents that half of the published packs have, and capacities for half of those
// packs, 96 %, nearly all, and all of them.
inline constexpr std::int64_t kBenchDocuments = 12;
inline constexpr std::array<std::int64_t, 4> kBenchCapacities{12, 64, 128, 358};

struct PackingRow {
  std::string name;       // "scan_forward", "step", "step by cudnn".
  std::string mode = {};  // "eager" or "graph".
  std::array<double, kBenchCapacities.size()> seconds{};  // Medians, by capacity.
  double cost = 0;           // The share of time that the largest capacity adds to the smallest.
  bool promised = false;     // On a GPU, an op of attention, convolution or scan of our own.
  std::string not_run = {};  // Why there is no time.
  static constexpr double kMost = 0.01;
  bool as_promised() const { return !promised || cost <= kMost; }
};

// Packs of kBenchDocuments documents of ever larger size, in bf16 also by cuDNN. An op runs alone,
// in a model of one layer of each kind, as many times as fill some milliseconds; capacities take
// turns for `budget` seconds. A step is the scenario's, `budget` seconds for each capacity. Rows
// whose name and mode hold `only`, each told when it is known.
void time_packing(const Scenario& scenario, const std::string& device, double budget,
                  const std::string& only, const std::function<void(const PackingRow&)>& done);

}  // namespace lockstep
