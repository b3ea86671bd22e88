// How one case is run, as every part of the harness passes it on.
#pragma once

#include <optional>
#include <string>

#include "engine/device/observer.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct RanksHere;

struct RunOptions {
  std::string device = "sim";  // "sim" or "cuda".
  std::string fault;           // Planted in kernels, engine or at the device door (harness/mutate), "" for none.
  std::string mutation;        // Planted in the oracle, "" for none.
  std::string blindness = "";  // Planted in the checker, "" for none.
  bool edges = false;          // List the edges that protect nothing.
  bool bits_alone = false;     // Neither checker nor dry-run ledger: only what a comparison of values sees.
  std::optional<SimOptions::Policy> policy = {};  // Instead of the scenario's schedules.
  const RanksHere* ranks = nullptr;               // Null: all of the scenario's.
  double deadline_s = 60;                         // Of ranks that are processes, for a collective.
  Observer* watcher = nullptr;                    // Told of every call at the device door, beside the judges.
};

}  // namespace lockstep
