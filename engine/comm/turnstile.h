// Lets exactly one of several threads run at a time. The turn passes where all of them arrive, and
// where one waits for what another is still to do.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {

class Turnstile {
 public:
  enum class Outcome : std::uint8_t {
    all,      // All threads arrived, or what this one waited for has come.
    missing,  // All others wait or have ended, so that what this one waits for never comes. One
              // thread is told.
    stopped,  // Another thread failed, or was told that somebody is missing: this one has to end.
  };

  // The order of turns after each arrival of all is drawn from `seed`.
  Turnstile(int size, std::uint64_t seed);

  // Waits for the first turn. False if the thread has to end before it began.
  bool begin(int thread);
  Outcome arrive_and_wait(int thread);
  // Returns when `holds`, which reads what threads with the turn write. The order of turns is drawn
  // anew each time that a thread has to wait so.
  Outcome wait_until(int thread, const std::function<bool()>& holds);
  // The last call of a thread, which has the turn. The others have to end too if it failed.
  void end(int thread, bool failed) noexcept;
  // Reports that the threads from this one on could not be started, so that the others end.
  void cannot_begin(int first) noexcept;
  bool has_ended(int thread);

 private:
  enum class State : std::uint8_t { ready, waiting, blocked, ended };
  bool is(int thread, State s) const { return at(states_, thread) == s; }
  State& state(int thread) { return at(states_, thread); }
  void shuffle();
  void pass();  // Gives the turn to the thread that runs next.
  bool may_run(int thread) const;
  Outcome take_turn(std::unique_lock<std::mutex>& lock, int thread);
  void wait_for_turn(std::unique_lock<std::mutex>& lock, int thread);

  std::mutex mutex_;
  std::vector<std::condition_variable> passed_;  // By thread: the others need not wake.
  std::vector<State> states_;
  std::vector<const std::function<bool()>*> conditions_;  // Blocked threads have one.
  std::vector<int> order_;
  std::uint64_t random_;
  int turn_ = -1;
  bool missing_ = false, stopped_ = false;
};

}  // namespace lockstep
