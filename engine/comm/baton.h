// Threads of which exactly one runs at a time: the turn passes where all of them meet, and nowhere else.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep {

class Baton {
 public:
  enum class Met : std::uint8_t {
    all,      // Everybody was there.
    missing,  // Everybody else is there or has ended, so that nobody else will come. Told to one thread.
    stopped,  // Another thread failed, or was told that somebody is missing: this one has to end.
  };

  // The order of turns after each meeting is drawn from `seed`.
  Baton(int size, std::uint64_t seed);

  // Waits for the first turn. False if the thread has to end before it began.
  bool begin(int thread);
  Met meet(int thread);
  // The last call of a thread, which has the turn. The others have to end too if it failed.
  void end(int thread, bool failed) noexcept;
  // Of the threads from this one on, which could not be started: the others have to end.
  void cannot_begin(int first) noexcept;
  bool has_ended(int thread);

 private:
  enum class State : std::uint8_t { ready, waiting, ended };
  bool is(int thread, State s) const { return states_[static_cast<std::size_t>(thread)] == s; }
  State& state(int thread) { return states_[static_cast<std::size_t>(thread)]; }
  void shuffle();
  void pass();  // To whoever runs next.
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
