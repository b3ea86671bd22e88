// Ranks that are processes, with calls in captured graphs: right bytes, graphs compared before they
// run, and a report when a rank is lost in a replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "engine/comm/graph_calls.h"
#include "engine/comm/store_communicator.h"
#include "engine/rendezvous/shared_memory_store.h"
#include "harness/checker/checker.h"
#include "tests/engine/comm/collective_program.h"
#include "tests/engine/comm/graph_transfers.h"
#include "tests/engine/comm/processes.h"
#include "tests/support/seed.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr double kDeadline = 20;  // For calls that all make: for a machine under load.

struct OneRank {
  OneRank(const std::string& path, int rank, int ranks, double deadline, const SimOptions& sim = {})
      : store({path}, rank, ranks, deadline),
        device(open_sim(sim), &checker),
        communicator(make_store_communicator(device, store)) {}
  SharedMemoryStore store;
  Checker checker{{.stop = false, .mutation = "", .dropped = {}}};
  Device device;
  std::unique_ptr<Communicator> communicator;
};

// Some calls of a program are eager, those that follow are in a graph, the rest is eager again.
RC_GTEST_PROP(ShmGraphs, ExchangeWhatTheDefinitionSaysOnEverySchedule, ()) {
  const int ranks = *rc::gen::inRange(2, 5);
  std::vector<CollectiveStep> steps = *any_collective_steps();
  const int count = static_cast<int>(steps.size());
  const int first = *rc::gen::inRange(0, count + 1), end = *rc::gen::inRange(first, count + 1);
  for (int i = first; i < end; ++i)
    steps[static_cast<std::size_t>(i)].read = steps[static_cast<std::size_t>(i)].meet = false;
  const CollectiveProgram program(ranks, steps);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto expected = program.expected();
  const TemporaryFolder folder;
  const auto segment = SharedMemoryStore::create({folder / "ranks"}, ranks);
  Processes processes(ranks, [&](int rank) {
    const Policy policy =
        all_policies()[(seed + static_cast<std::uint64_t>(rank)) % all_policies().size()];
    OneRank one(folder / "ranks", rank, ranks, kDeadline,
                {.policy = policy, .seed = seed, .trace = nullptr});
    const auto seen = program.run_with_graph(*one.communicator, one.device, first, end);
    if (!one.checker.hazards().empty())
      throw std::runtime_error(text(one.checker.hazards().front()));
    if (one.communicator->collectives != count) throw std::runtime_error("not counted");
    return seen == expected[static_cast<std::size_t>(rank)] ? 0 : 2;
  });
  for (const Ended& ended : processes.end()) {
    if (ended.status != 0) RC_FAIL(std::to_string(ended.status) + " " + ended.words);
  }
}

// The same program runs over NCCL in tests/engine/cuda/cuda_transfers_test.cpp.
TEST(ShmGraphs, SendToOneAnotherInGraphsAndBetweenThem) {
  for (const std::int64_t count : {1, 1000, 70'001}) {
    const TemporaryFolder folder;
    const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
    Processes processes(2, [&](int rank) {
      OneRank one(folder / "ranks", rank, 2, kDeadline);
      one.communicator->connect(ways_in_a_graph());
      const auto received = GraphTransfers(*one.communicator, one.device, count).run();
      if (!one.checker.hazards().empty())
        throw std::runtime_error(text(one.checker.hazards().front()));
      return received == GraphTransfers::expected() ? 0 : 2;
    });
    for (const Ended& ended : processes.end()) EXPECT_EQ(ended.status, 0) << ended.words;
  }
}

// Captures `calls` on "compute"; each launch runs them.
class Replayed {
 public:
  using Calls = std::function<void(Communicator&, const Stream&, void* memory)>;
  Replayed(OneRank& one, const Calls& calls)
      : one_(one),
        stream_(one.device, "compute"),
        memory_(one.device, kBytes),
        graph_(capture(calls)) {}
  void launch_alone() { stream_.launch(graph_); }  // The graph holds transfers.
  void launch() {
    one_.communicator->launch(stream_, graph_.ledger(), [&] { stream_.launch(graph_); });
  }

 private:
  static constexpr std::size_t kBytes = 256;
  Graph capture(const Calls& calls) {
    stream_.fill(memory_.data(), 0, kBytes);
    stream_.synchronize();
    stream_.begin_capture();
    calls(*one_.communicator, stream_, memory_.data());
    return stream_.end_capture();
  }
  OneRank& one_;
  Stream stream_;
  DeviceBuffer memory_;
  Graph graph_;
};

std::vector<Ended> ended_of(const Replayed::Calls& calls) {
  const TemporaryFolder folder;
  const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
  Processes processes(2, [&](int rank) {
    OneRank one(folder / "ranks", rank, 2, kDeadline);
    Replayed(one, calls).launch();
    return 0;
  });
  return processes.end();
}

TEST(ShmGraphs, AreComparedBeforeTheyRun) {
  const auto swapped = ended_of([](Communicator& c, const Stream& s, void* memory) {
    c.all_gather(s, {"gather", 5}, memory, memory, 0);
    for (const int unit : {0, 1})
      c.all_gather(s, {"gather", c.rank() == 0 ? unit : 1 - unit}, memory, memory, 64);
  });
  for (const Ended& one : swapped) {
    EXPECT_EQ(one.status, 1);
    EXPECT_THAT(
        one.words,
        AllOf(HasSubstr("ranks would replay different collectives: call 1 of the graph: rank "),
              HasSubstr("rank 0 all_gather (gather of unit 0, 64 bytes a rank)"),
              HasSubstr("rank 1 all_gather (gather of unit 1, 64 bytes a rank)")));
  }
  const auto missing = ended_of([](Communicator& c, const Stream& s, void* memory) {
    c.all_gather(s, {"gather", 0}, memory, memory, 64);
    if (c.rank() == 0)
      c.all_to_all(s, {"reduce", 1}, memory, static_cast<std::byte*>(memory) + 128, 64);
  });
  for (const Ended& one : missing) {
    EXPECT_EQ(one.status, 1);
    EXPECT_THAT(one.words,
                AllOf(HasSubstr("call 1 of the graph: rank "), HasSubstr("rank 1 no call"),
                      HasSubstr("rank 0 all_to_all (reduce of unit 1, 64 bytes a rank)")));
  }
}

// A collective of a replay is an access like any other: here another stream does not wait for the
// graph.
TEST(ShmGraphs, AreSeenByTheChecker) {
  const TemporaryFolder folder;
  const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
  Processes processes(2, [&](int rank) {
    OneRank one(folder / "ranks", rank, 2, kDeadline);
    void* exchanged = nullptr;
    Replayed replayed(one, [&](Communicator& c, const Stream& s, void* memory) {
      c.all_gather(s, {"gather", 3}, exchanged = memory, memory, 64);
    });
    replayed.launch();
    if (!one.checker.hazards().empty()) return 2;
    const Stream other(one.device, "other");
    other.fill(exchanged, 0, 128);
    other.synchronize();
    if (one.checker.hazards().empty()) return 3;
    throw std::runtime_error(text(one.checker.hazards().front()));
  });
  for (const Ended& one : processes.end()) {
    EXPECT_EQ(one.status, 1);
    EXPECT_THAT(one.words, AllOf(HasSubstr("write after write: fill"),
                                 HasSubstr("is not ordered after all_gather")));
  }
}

TEST(ShmGraphs, AreLaunchedByAllRanksOrNone) {
  const TemporaryFolder folder;
  const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
  Processes processes(2, [&](int rank) {
    OneRank one(folder / "ranks", rank, 2, kDeadline);
    const auto call = [](Communicator& c, const Stream& s, void* memory) {
      c.all_gather(s, {"gather", 3}, memory, memory, 64);
    };
    if (rank == 0) Replayed(one, call).launch();
    const Stream stream(one.device, "gather");
    one.communicator->all_gather(stream, {"gather", 3}, nullptr, nullptr, 0);
    return 0;
  });
  for (const Ended& one : processes.end()) {
    EXPECT_EQ(one.status, 1);
    EXPECT_THAT(
        one.words,
        AllOf(HasSubstr("ranks call different collectives: "),
              HasSubstr("rank 0 collective 0, launch of a graph on stream compute"),
              HasSubstr("rank 1 collective 0, all_gather (gather of unit 3, 0 bytes a rank)")));
  }
}

// Rank 0 sends on one stream what it has from rank 1 on another, and launches twice: each launch
// sends what its memory holds by then.
TEST(ShmGraphs, HoldTransfersBothWays) {
  for (const Policy policy : all_policies()) {
    const TemporaryFolder folder;
    const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
    Processes processes(2, [&](int rank) {
      OneRank one(folder / "ranks", rank, 2, kDeadline,
                  {.policy = policy, .seed = 7, .trace = nullptr});
      Communicator& ranks = *one.communicator;
      const Stream compute(one.device, "compute"), send(one.device, "send forward"),
          receive(one.device, "receive backward");
      DeviceBuffer mine(one.device, 64), theirs(one.device, 64);
      compute.fill(mine.data(), 0, 64);
      compute.fill(theirs.data(), 0, 64);
      const Event fork(one.device), sent(one.device), received(one.device);
      compute.begin_capture();
      compute.record(fork);
      send.wait(fork);
      receive.wait(fork);
      ranks.send(send, {"activations", rank, 0}, mine.data(), 64, 1 - rank);
      ranks.receive(receive, {"activations", 1 - rank, 0}, theirs.data(), 64, 1 - rank);
      for (const auto& [event, stream] : {std::pair(&sent, &send), {&received, &receive}}) {
        stream->record(*event);
        compute.wait(*event);
      }
      const Graph graph = compute.end_capture();
      for (const std::uint8_t launch : {3, 5}) {
        compute.fill(mine.data(), static_cast<std::uint8_t>(launch + rank), 64);
        compute.launch(graph);
        std::vector<std::uint8_t> seen(64);
        compute.copy(seen.data(), theirs.data(), 64, CopyKind::device_to_host);
        compute.synchronize();
        if (seen != std::vector<std::uint8_t>(64, static_cast<std::uint8_t>(launch + 1 - rank)))
          return 2;
      }
      if (ranks.collectives != 2) return 3;  // A send a launch.
      return one.checker.hazards().empty() ? 0 : 4;
    });
    for (const Ended& one : processes.end()) EXPECT_EQ(one.status, 0) << one.words;
  }
}

// A graph reads what it sends, although the letter goes to the memory of another process.
TEST(ShmGraphs, ShowTheCheckerWhatTheySend) {
  const TemporaryFolder folder;
  const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
  Processes processes(2, [&](int rank) {
    OneRank one(folder / "ranks", rank, 2, kDeadline);
    void* memory = nullptr;
    Replayed replayed(one, [&](Communicator& c, const Stream& s, void* all) {
      memory = all;
      rank == 0 ? c.send(s, {"activations", 0, 0}, all, 64, 1)
                : c.receive(s, {"activations", 0, 0}, all, 64, 0);
    });
    replayed.launch_alone();
    if (!one.checker.hazards().empty()) return 2;
    const Stream other(one.device, "other");
    other.fill(memory, 0, 64);
    other.synchronize();
    if (one.checker.hazards().empty()) return 3;
    throw std::runtime_error(text(one.checker.hazards().front()));
  });
  const std::vector<Ended> ended = processes.end();
  EXPECT_THAT(ended.at(0).words, AllOf(HasSubstr("write after read: fill"),
                                       HasSubstr("is not ordered after send of 64 bytes")));
  EXPECT_THAT(ended.at(1).words, AllOf(HasSubstr("write after write: fill"),
                                       HasSubstr("is not ordered after receive of 64 bytes")));
}

IssuedCall transfer(CollectiveKind kind, const CollectiveName& name, std::size_t bytes = 64) {
  return {ExchangeCall{{nullptr, kind, name, 0, 2, 1}, nullptr, nullptr, bytes}, 0};
}

TEST(GraphTransfers, AreThoseThatTheOtherStageAwaits) {
  using enum CollectiveKind;
  Ledger first, second;
  for (const int m : {0, 1}) {
    first.append(transfer(send, {"activations", 0, m}));
    second.append(transfer(receive, {"activations", 0, m}));
    second.append(transfer(send, {"gradients", 1, m}));
  }
  for (const int m : {0, 1}) first.append(transfer(receive, {"gradients", 1, m}));
  const std::vector<std::uint64_t> documents{7, 8}, others{7, 9};
  require_matching_transfers(
      {{0, transfers_text(first, documents)}, {2, transfers_text(second, documents)}});
  const auto said = [](const std::vector<RankTransfers>& ranks) -> std::string {
    try {
      require_matching_transfers(ranks);
    } catch (const CollectiveMismatch& mismatch) {
      return mismatch.what();
    }
    return "";
  };
  EXPECT_EQ(said({{0, transfers_text(first, documents)}, {2, transfers_text(second, others)}}),
            "stages would replay different transfers: rank 0 has send of activations of piece 0, "
            "microbatch 1, 64 bytes, documents 0000000000000008; rank 2 awaits send of activations "
            "of piece 0, microbatch 1, 64 bytes, documents 0000000000000009");
  second.append(transfer(send, {"gradients", 1, 0}));
  EXPECT_THAT(said({{0, transfers_text(first, documents)}, {2, transfers_text(second, documents)}}),
              AllOf(HasSubstr("rank 2 has send of gradients of piece 1, microbatch 0"),
                    HasSubstr("rank 0 awaits nothing more")));
  EXPECT_THAT(said({{0, transfers_text(first, documents)}}), HasSubstr("no rank awaits"));
}

// Calls of a group and of all ranks on two streams of one graph: a host that waited for the one
// call while another waits for the other would never end.
TEST(ShmGraphs, HaveOneOrderOfTheCallsOfAllGroups) {
  for (const Policy policy : all_policies()) {
    const TemporaryFolder folder;
    const auto segment = SharedMemoryStore::create({folder / "ranks"}, 3);
    Processes processes(3, [&](int rank) {
      OneRank one(folder / "ranks", rank, 3, kDeadline,
                  {.policy = rank == 1 ? policy : Policy::program, .seed = 7, .trace = nullptr});
      const auto group = rank < 2 ? one.communicator->group({0, 1}) : nullptr;
      const Stream compute(one.device, "compute"), gather(one.device, "gather");
      DeviceBuffer all(one.device, 192), some(one.device, 128);
      compute.fill(all.data(), 0, all.bytes());
      compute.fill(some.data(), 0, some.bytes());
      const Event fork(one.device), join(one.device);
      compute.begin_capture();
      compute.record(fork);
      gather.wait(fork);
      for (int unit = 0; unit < 3; ++unit) {
        if (group) group->all_gather(compute, {"rows", unit}, some.data(), some.data(), 64);
        one.communicator->all_gather(gather, {"gather", unit}, all.data(), all.data(), 64);
      }
      gather.record(join);
      compute.wait(join);
      const Graph graph = compute.end_capture();
      compute.launch(graph);
      compute.synchronize();
      return one.checker.hazards().empty() ? 0 : 2;
    });
    for (const Ended& one : processes.end()) EXPECT_EQ(one.status, 0) << one.words;
  }
}

// LOCKSTEP_KILLS of them, at random moments of ranks that do nothing but replay.
TEST(ShmGraphs, ReportARankThatIsKilledInAReplay) {
  std::mt19937_64 random(test_seed());
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  for (int left = wanted ? std::atoi(wanted) : 3; left > 0; --left) {
    const int killed = static_cast<int>(random() % 3);
    const TemporaryFolder folder;
    const auto segment = SharedMemoryStore::create({folder / "ranks"}, 3);
    Processes processes(3, [&](int rank) {
      OneRank one(folder / "ranks", rank, 3, 2);
      Replayed replayed(one, [](Communicator& c, const Stream& s, void* memory) {
        for (int unit = 0; unit < 20; ++unit) c.all_gather(s, {"gather", unit}, memory, memory, 64);
      });
      for (;;) replayed.launch();
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(50'000 + random() % 50'000));
    processes.kill(killed);
    for (int rank = 0; rank < 3; ++rank) {
      const Ended ended = processes.wait(rank);
      if (rank == killed) continue;
      EXPECT_EQ(ended.status, 4) << ended.words;
      EXPECT_THAT(ended.words,
                  AllOf(HasSubstr("rank " + std::to_string(killed) + " did not come within 2 s: "),
                        HasSubstr("rank " + std::to_string(rank) + " waits in collective ")));
    }
  }
}

TEST(ShmGraphs, HoldCallsOnlyOnTheSimulator) {
  const auto sim = open_sim();
  BackendStream* stream = sim->create_stream("compute");
  EXPECT_THROW(sim->call(stream, "all_gather", [] {}), DeviceError);  // Outside a capture.
  int calls = 0;
  sim->begin_capture(stream);
  sim->call(stream, "all_gather", [&] { ++calls; });
  BackendGraph* graph = sim->end_capture(stream);
  EXPECT_EQ(calls, 0);
  for (int launch = 1; launch <= 2; ++launch) {
    sim->launch(graph, stream);
    EXPECT_EQ(calls, launch);  // The launch returns when they are made.
  }
  sim->destroy_graph(graph);
}

// A rank that is lost leaves a graph behind whose other nodes still run.
TEST(ShmGraphs, GoOnBehindACallThatFailed) {
  const auto sim = open_sim();
  BackendStream* stream = sim->create_stream("compute");
  auto* memory = static_cast<unsigned char*>(sim->allocate(1));
  sim->begin_capture(stream);
  sim->call(stream, "all_gather", [] { throw CollectiveHang("lost"); });
  sim->fill(stream, memory, 7, 1);
  BackendGraph* graph = sim->end_capture(stream);
  EXPECT_THROW(sim->launch(graph, stream), CollectiveHang);
  sim->synchronize(stream);
  EXPECT_EQ(*memory, 7);
  sim->destroy_graph(graph);
  sim->release(memory);
}

}  // namespace
}  // namespace lockstep::test
