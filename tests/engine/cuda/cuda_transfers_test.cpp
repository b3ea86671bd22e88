// Two processes with a GPU each send to one another over NCCL, in graphs too, as they do on the
// simulated device. CUDA does not survive a fork: only the processes of the test open GPUs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "engine/comm/nccl_communicator.h"
#include "engine/rendezvous/shared_memory_store.h"
#include "tests/engine/comm/graph_transfers.h"
#include "tests/engine/comm/processes.h"

namespace lockstep::test {
namespace {

constexpr double kDeadline = 120;

// The sizes are of one element, of a part of one of NCCL's chunks, and of many chunks.
TEST(CudaTransfers, ArriveFromGraphsAndBetweenThem) {
  for (const bool copies : {true, false}) {
    for (const std::int64_t count : {1, 1000, 3'000'001}) {
      const TemporaryFolder folder;
      const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
      Processes processes(2, [&](int rank) {
        ::setenv("LOCKSTEP_COPY_ENGINES", copies ? "1" : "0", 1);
        SharedMemoryStore store({folder / "ranks"}, rank, 2, kDeadline);
        Device device(open_cuda(rank));
        const auto ranks = make_nccl_communicator(device, store);
        std::vector<TransferWay> ways = ways_in_a_graph();
        ways.push_back({0, 1, "eager alone", 1});
        ranks->connect(ways);
        const ConnectedWays connected = connected_ways(*ranks);
        const bool joined_for_all = connected.over_library == connected.all;
        if (connected.all != 3 || connected.over_library < 2 || (!copies && !joined_for_all))
          throw std::runtime_error(std::to_string(connected.over_library) + " communicators");
        const std::vector<float> received = GraphTransfers(*ranks, device, count).run();
        if (received == GraphTransfers::expected()) return 0;
        std::string words = "received";
        for (const float value : received) words += " " + std::to_string(value);
        throw std::runtime_error(words);
      });
      for (const Ended& one : processes.end())
        EXPECT_EQ(one.status, 0) << one.words << ", " << count << " elements, copies " << copies;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
