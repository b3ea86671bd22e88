#include "engine/turns.h"

#include <exception>
#include <thread>
#include <vector>

#include "kernels/require.h"

namespace lockstep {

void Turns::run(const std::function<void(int thread)>& body) {
  std::exception_ptr failure;  // The first of all. Only the thread with the turn touches it.
  const auto run_one = [&](int thread) {
    bool failed = !baton_.begin(thread);
    try {
      if (!failed) {
        device_.backend().enter_thread();
        device_.place = {};
        body(thread);
      }
    } catch (const RankStopped&) {
      failed = true;
    } catch (...) {
      if (!failure) failure = std::current_exception();
      failed = true;
    }
    baton_.end(thread, failed);
  };
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < size_; ++thread) threads.emplace_back(run_one, thread);
  threads.clear();
  device_.place = {};
  if (failure) std::rethrow_exception(failure);
}

bool Turns::meet(int thread) {
  require(!device_.capturing() && !device_.in_dry_run(), "ranks meet outside of captures and dry runs");
  const Place place = device_.place;
  const Baton::Met met = baton_.meet(thread);
  device_.place = place;
  if (met == Baton::Met::stopped) throw RankStopped{};
  return met == Baton::Met::all;
}

}  // namespace lockstep
