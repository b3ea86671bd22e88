// Lets exactly one of several threads run at a time. The turn passes where all of them arrive, and
// nowhere else.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {

class Turnstile {
 public:
  enum class Outcome : std::uint8_t {
    all,      // All threads arrived.
    missing,  // All others have arrived or ended, so that a thread will never arrive. One thread is
              // told.
    stopped,  // Another thread failed, or was told that somebody is missing: this one has to end.
  };

  // The order of turns after each arrival of all is drawn from `seed`.
  Turnstile(int size, std::uint64_t seed);

  // Waits for the first turn. False if the thread has to end before it began.
  bool begin(int thread);
  Outcome arrive_and_wait(int thread);
  // The last call of a thread, which has the turn. The others have to end too if it failed.
  void end(int thread, bool failed) noexcept;
  // Reports that the threads from this one on could not be started, so that the others end.
  void cannot_begin(int first) noexcept;
  bool has_ended(int thread);

 private:
  enum class State : std::uint8_t { ready, waiting, ended };
  bool is(int thread, State s) const { return at(states_, thread) == s; }
  State& state(int thread) { return at(states_, thread); }
  void shuffle();
  void pass();  // Gives the turn to the thread that runs next.
  void wait_for_turn(std::unique_lock<std::mutex>& lock, int thread);

  std::mutex mutex_;
  std::condition_variable passed_;
  std::vector<State> states_;
  std::vector<int> order_;
  std::uint64_t random_;
  int turn_ = -1;
  bool missing_ = false, stopped_ = false;
};

}  // namespace lockstep
