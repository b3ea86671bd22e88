// Which of the runnable items runs next. Nothing else in the simulator chooses, and nothing chooses
// but by the seed.
#pragma once

#include <vector>

#include "engine/sim/memory.h"
#include "engine/sim/work.h"

namespace lockstep {

class SimSchedule {
 public:
  SimSchedule(const SimOptions& options, SimMemory& memory)
      : options_(options), memory_(memory), state_(options.seed) {
    plan_change();
  }

  void add(BackendStream* stream);
  void add_run(SimRun& run);  // Before it is put in its stream.

  // Under the policy `program` runs what has been submitted, under `given` what is next in its
  // list; does nothing under the others.
  void submitted();
  void host_acts();  // The host's turn, in policy `given`.
  // Runs at least what completes the item, and everything it depends on.
  void drain(BackendStream& stream, std::int64_t ticket);
  void drain(SimMark& mark);
  void drain_all();
  // One item towards completing it: what happens while the host polls.
  void nudge(BackendStream& stream, std::int64_t ticket);
  void nudge(SimMark& mark);
  // Completes records and waits that have nothing left to run before them.
  void settle();

  std::int64_t items_run() const { return items_run_; }

 private:
  // The head of a stream, or a ready node of the launch at its head.
  struct Unit {
    BackendStream* stream;
    int ready = -1;  // Index in the run's ready list.
  };

  bool settle(BackendStream& stream);
  bool settle_run(SimRun& run);
  void need(BackendStream& stream, std::int64_t ticket);
  void need(SimMark& mark);
  void need_marks_of(SimRun& run);
  void need_node(SimRun& run, int node);

  // False if nothing was runnable, and nothing will be when time passes.
  bool step(bool only_needed);
  bool run_one(bool only_needed);
  bool pass_time();  // To the end of the delay that ends first; false if there is none.
  bool is_over(std::int64_t& due, const SimDelay& delay);
  void follow();  // Policy `given`: all turns before the host's next.
  void find_units(bool only_needed);
  std::size_t pick();
  std::uint64_t& priority(const Unit& unit);
  void run(const Unit& unit);
  // Says what it was. `launched`: the launch that it is a part of, or null.
  const char* execute(const SimWork& work, const SimRun* launched);
  void note(const SimStep& step);
  bool wants_only_needed();
  void plan_change();
  std::uint64_t draw();
  std::uint64_t below(std::uint64_t bound) { return draw() % bound; }

  SimOptions options_;
  SimMemory& memory_;
  std::uint64_t state_;
  std::vector<BackendStream*> streams_;  // In order of creation.
  std::vector<Unit> units_;
  std::int64_t items_run_ = 0;
  std::int64_t turn_ = 0;      // Items run, and the time that passed while everything was delayed.
  std::int64_t next_due_ = 0;  // The earliest end of a delay that settle() has seen.
  std::size_t cursor_ = 0;     // In the given schedule.
  int launches_ = 0;
  std::int64_t until_change_ = 0;
  std::uint64_t lowest_ = std::uint64_t{1} << 62;
};

}  // namespace lockstep
