// Runs a recorded program under many schedules without its arithmetic: the effect of an item is a
// 64-bit tag, hashed from its identity and the tags of the bytes it reads. Tags that come out equal
// mean equal bits; the arithmetic is run only to confirm what differs. Hundreds of times faster
// than running the schedules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/pressure.h"
#include "harness/explore/program.h"

namespace lockstep {

struct ExploreOptions {
  enum class Policy : std::uint8_t {
    program,  // The order of the calls, as far as delays allow.
    random,   // Any of those that may run, equally likely.
    pct,      // Probabilistic concurrency testing: a random priority a thread, lowered at depth - 1
              // random places.
  };
  Policy policy = Policy::random;
  int depth = 1;
  // The seed of the first schedule; each further one adds 1. Equal seeds give equal schedules.
  std::uint64_t seed = 1;
  std::int64_t count = 1000;
  std::vector<StreamDelay> delays;  // In turns: items that run meanwhile.
};

// The outcome of one schedule. `observed` hashes all that the host saw. `everything` hashes which
// writes, in which order, preceded each access to each byte; it differs whenever two conflicting
// accesses changed places, whatever the effect.
struct Tags {
  std::uint64_t observed = 0;
  std::uint64_t everything = 0;
  friend bool operator==(const Tags&, const Tags&) = default;
};

struct FoundSchedule {
  std::uint64_t seed = 0;
  std::vector<int> order;  // The items as they ran.
  int item = -1;  // The first, in the order of the calls, that met other memory than in that order.
  Tags tags;
};

struct Exploration {
  std::int64_t schedules = 0;
  Tags expected;                           // In the order of the calls.
  std::optional<FoundSchedule> observed;   // The first schedule that changed what the host saw,
  std::optional<FoundSchedule> reordered;  // and the first that changed anything.
  // The self-check: a schedule that failed did not fail again in the same way.
  std::string unstable;
};

class Explorer {
 public:
  explicit Explorer(const Program& program);
  Tags run(const ExploreOptions& options, std::uint64_t seed);
  const std::vector<int>& order() const { return order_; }  // For the last run.
  // Per item: a hash of the writes before its accesses.
  const std::vector<std::uint64_t>& met() const { return met_; }

 private:
  struct Choice;
  void execute(int item);
  const Program& program_;
  std::vector<int> after_, after_begin_;  // Successors.
  std::vector<int> missing_at_start_, missing_;
  std::vector<int> ready_, order_;
  // Per atom: a hash of its value, and of its writers in order.
  std::vector<std::uint64_t> values_, writers_;
  std::vector<std::uint64_t> effects_, met_;  // By item.
};

// Stops at the first schedule that changes what the host sees. That an edge of a logged run is not
// needed for the bits:
//   !explore(program_of(log, {edge}), {.count = 1000}).observed
Exploration explore(const Program& program, const ExploreOptions& options);

// The schedule as the simulated device follows it.
std::vector<SimTurn> turns(const Program& program, const std::vector<int>& order);

// "a missing edge of depth 1 is hit with probability >= 1/5 a schedule; 1000 schedules ran", for
// reports.
std::string bound_text(const Program& program, const ExploreOptions& options);

}  // namespace lockstep
