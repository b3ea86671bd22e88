// Counts the calls of a run: what it asks of the device, whatever comes back.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "engine/device/observer.h"
#include "harness/costs/costs.h"

namespace lockstep {

// Calls of the harness itself, which reads results, do not count; queries do not either, since
// their number depends on time. A launch counts what its graph holds.
class CostCounter : public Observer {
 public:
  void on_call(const IssuedCall& issued) override;
  // The rank has run its step, and its evaluation begins.
  void enter_evaluation(int rank) { ranks_[rank].evaluates = true; }
  // The rank has run all its steps: what it does from here on is the harness's.
  void close(int rank);

  // Sums over the ranks of this process.
  Costs costs() const;
  StepMemory step_memory() const;
  const RecomputedOps& recomputed() const { return recomputed_; }
  // "" or a sentence: a step copies from or to memory that is not pinned. The driver makes the host
  // wait for such a copy, and no call at the device shows it.
  std::string pageable_copies() const;

 private:
  struct Memory {
    std::int64_t bytes = 0, peak = 0;
    std::vector<std::int64_t> after;  // By step.
    std::map<std::string, std::int64_t> from;
    StepMemory::Origins from_after;  // By step.

    void add(std::int64_t more, const std::string& origin);
    void end_steps(std::int64_t next);  // The steps before `next` have ended.
  };
  struct Rank {
    Memory device, pinned, objects, graphs;
    std::int64_t step = 0;
    bool closed = false, evaluates = false, captures = false;

    std::string origin(const StepLocation& place) const;
    void end_steps(std::int64_t next);
  };
  struct Allocation {
    int rank = 0;
    std::int64_t bytes = 0;
    std::string origin;
  };

  void count(const std::string& group, const std::string& name, std::int64_t more = 1) {
    costs_[group][name] += more;
  }
  void count_work(const IssuedCall& issued);
  void count_pageable(const CopyCall& copy, const StepLocation& place);
  void count_recomputed(const IssuedCall& issued);
  void allocate(const AllocateCall& call, const StepLocation& place);
  void release(const ReleaseCall& call);
  enum class Object : std::uint8_t { stream, event, graph };
  void count_objects(const IssuedCall& issued);
  void create(Object kind, int number, const StepLocation& place);
  void destroy(Object kind, int number);

  Costs costs_;
  RecomputedOps recomputed_;
  std::int64_t pageable_ = 0;
  std::string first_pageable_;
  std::map<int, Rank> ranks_;
  std::map<const void*, Allocation> allocations_;
  struct Owner {
    int rank = 0;
    std::string origin;
  };
  std::map<std::pair<Object, int>, Owner> owners_;
};

}  // namespace lockstep
