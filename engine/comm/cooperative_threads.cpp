#include "engine/comm/cooperative_threads.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/core/require.h"

namespace lockstep {

void CooperativeThreads::run(const std::function<void(int thread)>& body) {
  std::exception_ptr failure;  // The first failure. Only the thread with the turn touches it.
  const auto run_one = [&](int thread) {
    bool failed = !turnstile_.begin(thread);
    try {
      if (!failed) {
        device_.backend().enter_thread();
        device_.place = {.rank = rank_of(thread)};
        device_.turn_of(rank_of(thread));
        body(thread);
      }
    } catch (const RankStopped&) {
      failed = true;
    } catch (...) {
      if (!failure) failure = std::current_exception();
      failed = true;
    }
    turnstile_.end(thread, failed);
  };
  std::vector<std::jthread> threads;
  std::exception_ptr not_started;
  for (std::size_t thread = 0; thread < ranks_.size() && !not_started; ++thread) {
    try {
      threads.emplace_back(run_one, static_cast<int>(thread));
    } catch (const std::exception& error) {
      // Out of memory: the other threads must not wait for this one.
      const std::string who = "rank " + std::to_string(rank_of(static_cast<int>(thread)));
      not_started =
          std::make_exception_ptr(std::runtime_error("no thread for " + who + ": " + error.what()));
      turnstile_.cannot_begin(static_cast<int>(thread));
    }
  }
  threads.clear();
  device_.place = {};
  device_.turn_of(-1);
  if (failure || not_started) std::rethrow_exception(failure ? failure : not_started);
}

bool CooperativeThreads::arrive_and_wait(int thread) {
  return wait(thread, [&] { return turnstile_.arrive_and_wait(thread); });
}

bool CooperativeThreads::wait_until(int thread, const std::function<bool()>& holds) {
  return wait(thread, [&] { return turnstile_.wait_until(thread, holds); });
}

bool CooperativeThreads::wait(int thread, const std::function<Turnstile::Outcome()>& turnstile) {
  require(!device_.capturing() && !device_.in_dry_run(),
          "ranks meet outside of captures and dry runs");
  const StepLocation place = device_.place;
  const Turnstile::Outcome outcome = turnstile();
  device_.place = place;
  device_.turn_of(rank_of(thread));
  if (outcome == Turnstile::Outcome::stopped) throw RankStopped{};
  return outcome == Turnstile::Outcome::all;
}

}  // namespace lockstep
