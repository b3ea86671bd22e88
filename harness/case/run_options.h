// The options of one case, as every part of the harness passes them on.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/device/observer.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct LocalRanks;
class RankTeams;

// Faults by name, "" for none.
struct PlantedFault {
  std::string engine = "";   // A fault of kernels, engine or device (harness/mutate).
  std::string oracle = "";   // An oracle mutation.
  std::string checker = "";  // A checker mutation.
};

struct RunOptions {
  std::string device = "sim";  // "sim" or "cuda".
  PlantedFault planted = {};
  bool edges = false;       // List the edges that protect nothing.
  bool costs = true;        // Hold what is asked of the device against costs.txt.
  bool names_op = true;     // Run a case that differs again, to name the op that is wrong.
  bool bits_alone = false;  // Compare values only, without the checker and the dry-run ledger.
  std::optional<SimOptions::Policy> policy = {};  // It replaces the scenario's schedules.
  const LocalRanks* ranks = nullptr;              // Null: all of the scenario's.
  RankTeams* teams = nullptr;   // Ranks that are processes stay for the next case; null: they end.
  double deadline_s = 60;       // For one collective of ranks that are processes.
  Observer* watcher = nullptr;  // Is told of every device call, in addition to the checker.
  // Is told what is done now, for who waits for it: "engine, step 3 of 10". It may be empty.
  std::function<void(const std::string&)> progress = {};
};

}  // namespace lockstep
