#include "engine/comm/ranks.h"

#include <numeric>

#include "engine/comm/local_communicator.h"
#include "engine/comm/store_communicator.h"
#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {

void run_ranks(Device& device, int size, std::uint64_t seed,
               const std::function<void(Communicator&)>& body) {
  require(size >= 1, "a run has at least one rank");
  if (size == 1) return body(*make_self_communicator(device));
  std::vector<int> numbers(size);
  std::iota(numbers.begin(), numbers.end(), 0);
  CooperativeThreads threads(device, numbers, seed);
  LocalRanks all(device, threads, numbers);
  threads.run([&](int rank) {
    LocalCommunicator communicator(all, rank);
    body(communicator);
  });
}

// Before a thread waits for other processes, all threads of this process have done the work that
// those wait for.
void run_ranks(Device& device, std::span<const std::unique_ptr<Store>> stores, std::uint64_t seed,
               const std::function<void(Communicator&)>& body) {
  std::vector<int> numbers;
  for (const auto& store : stores) numbers.push_back(store->rank());
  CooperativeThreads threads(device, numbers, seed);
  threads.run([&](int thread) {
    Store& store = *at(stores, thread);
    if (stores.size() > 1) {
      store.local_barrier = [&threads, thread] {
        if (!threads.arrive_and_wait(thread))
          throw CollectiveHang("ranks wait for one of their process that has ended");
      };
    }
    body(*make_store_communicator(device, store));
  });
}

}  // namespace lockstep
