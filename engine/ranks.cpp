#include "engine/ranks.h"

#include <exception>
#include <thread>
#include <vector>

#include "engine/local_communicator.h"
#include "kernels/require.h"

namespace lockstep {
namespace {

// The thread of one rank; the first failure of all is kept in `failure`, which only the thread with the turn touches.
void run_rank(LocalRanks& all, int rank, const std::function<void(Communicator&)>& body, std::exception_ptr& failure) {
  bool failed = !all.baton.begin(rank);
  if (!failed) {
    LocalCommunicator communicator(all, rank);
    try {
      all.device.backend().enter_thread();
      all.device.place = {.rank = rank};
      body(communicator);
    } catch (const RankStopped&) {
      failed = true;
    } catch (...) {
      if (!failure) failure = std::current_exception();
      failed = true;
    }
  }
  all.baton.end(rank, failed);
}

}  // namespace

void run_ranks(Device& device, int size, std::uint64_t seed, const std::function<void(Communicator&)>& body) {
  require(size >= 1, "a run has at least one rank");
  if (size == 1) return body(*make_lone_communicator(device));
  LocalRanks all(device, size, seed);
  std::exception_ptr failure;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { run_rank(all, rank, body, failure); });
  }
  threads.clear();
  device.place = {};
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep
