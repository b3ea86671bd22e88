#include "engine/comm/ranks.h"

#include "engine/comm/local_communicator.h"
#include "engine/comm/meeting_communicator.h"
#include "kernels/core/require.h"

namespace lockstep {

void run_ranks(Device& device, int size, std::uint64_t seed, const std::function<void(Communicator&)>& body) {
  require(size >= 1, "a run has at least one rank");
  if (size == 1) return body(*make_lone_communicator(device));
  LocalRanks all(device, size, seed);
  all.turns.run([&](int rank) {
    LocalCommunicator communicator(all, rank);
    body(communicator);
  });
}

// Before a thread waits for other processes, all threads of this one have done what those wait for.
void run_ranks(Device& device, std::span<const std::unique_ptr<Meeting>> meetings, std::uint64_t seed,
               const std::function<void(Communicator&)>& body) {
  std::vector<int> numbers;
  for (const auto& meeting : meetings) numbers.push_back(meeting->rank());
  Turns turns(device, numbers, seed);
  turns.run([&](int thread) {
    Meeting& meeting = *meetings[static_cast<std::size_t>(thread)];
    if (meetings.size() > 1) {
      meeting.meet_here = [&turns, thread] {
        if (!turns.meet(thread)) throw CollectiveHang("ranks wait for one of their process that has ended");
      };
    }
    body(*make_meeting_communicator(device, meeting));
  });
}

}  // namespace lockstep
