#include "engine/ranks.h"

#include "engine/local_communicator.h"
#include "engine/shm_communicator.h"
#include "kernels/require.h"

namespace lockstep {

void run_ranks(Device& device, int size, std::uint64_t seed, const std::function<void(Communicator&)>& body) {
  require(size >= 1, "a run has at least one rank");
  if (size == 1) return body(*make_lone_communicator(device));
  LocalRanks all(device, size, seed);
  all.turns.run([&](int rank) {
    LocalCommunicator communicator(all, rank);
    device.place.rank = rank;
    body(communicator);
  });
}

// Before a thread waits for other processes, all threads of this one have done what those wait for.
void run_ranks(Device& device, std::span<const std::unique_ptr<Segment>> segments, std::uint64_t seed,
               const std::function<void(Communicator&)>& body) {
  Turns turns(device, static_cast<int>(segments.size()), seed);
  turns.run([&](int thread) {
    Segment& segment = *segments[static_cast<std::size_t>(thread)];
    segment.meet_here = [&turns, thread] {
      if (!turns.meet(thread)) throw CollectiveHang("ranks wait for one of their process that has ended");
    };
    device.place.rank = segment.rank();
    body(*make_shm_communicator(device, segment));
  });
}

}  // namespace lockstep
