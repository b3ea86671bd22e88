// The host side of ranks with a GPU each, over a library that moves nothing: calls are compared
// before they are made, and the watchdog ends a process whose call is never done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "engine/rendezvous/shared_memory_store.h"
#include "tests/engine/comm/fake_library.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The observer sees what each call does to this rank's memory.
TEST(Nccl, OrdersItsCallsAndTellsTheObserver) {
  const TemporaryFolder folder;
  const auto ended = ended_of(
      Library::works, 20, folder,
      [](Communicator& c, auto& gather, auto& reduce, auto& from, auto& to) {
        c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 16);
        c.all_to_all(reduce, {"reduce", 0}, from.data(), to.data(), 16);
        c.reduce_scatter(reduce, {"reduce", 1}, to.data(), from.data(), 16);
        c.all_reduce(gather, {"reduce", 2}, to.data(), 32);
        if (c.collectives != 4) throw std::runtime_error("not counted");
        if (c.all_gather_object(std::to_string(c.rank())) != std::vector<std::string>{"0", "1"})
          throw std::runtime_error("not told");
        gather.synchronize();
      });
  for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
  const auto racy = ended_of(Library::works, 20, folder,
                             [](Communicator& c, auto& gather, auto& reduce, auto& from, auto& to) {
                               c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 16);
                               reduce.fill(to.data(), 1, to.bytes());
                               gather.synchronize();
                               reduce.synchronize();
                             });
  for (const Ended& one : racy) EXPECT_THAT(one.words, HasSubstr("write after write"));
  // A sum reads what every rank will have of it.
  const auto early =
      ended_of(Library::works, 20, folder,
               [](Communicator& c, auto& gather, auto& reduce, auto& from, auto& to) {
                 gather.synchronize();
                 c.reduce_scatter(gather, {"reduce", 0}, to.data(), from.data(), 16);
                 reduce.fill(from.data() + 4, 1, 16);
                 gather.synchronize();
                 reduce.synchronize();
               });
  for (const Ended& one : early) EXPECT_THAT(one.words, HasSubstr("write after read"));
}

// One launch, on the stream of the last call before it; all are counted, and told to the observer.
TEST(Nccl, MakesTogetherWhatIsCalledTogether) {
  const TemporaryFolder folder;
  const auto ended = ended_of(
      Library::works, 20, folder,
      [](Communicator& c, auto& gather, auto& reduce, auto& from, auto& to) {
        FakeRanks::said = "";
        c.grouped([&] {
          c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 8);
          c.all_gather(gather, {"gather", 1}, to.data() + 4, from.data(), 8);
        });
        c.grouped([&] { c.all_to_all(reduce, {"reduce", 0}, from.data(), to.data(), 16); });
        c.grouped([] {});
        c.grouped([&] {
          c.all_gather(gather, {"gather", 2}, nullptr, nullptr, 0);
          c.all_gather(gather, {"gather", 3}, to.data(), from.data(), 16);
        });
        if (FakeRanks::said != "(gg)x(g)") throw std::runtime_error(FakeRanks::said);
        if (c.collectives != 5) throw std::runtime_error("not counted");
        gather.synchronize();
        reduce.synchronize();
      });
  for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
  const auto racy = ended_of(Library::works, 20, folder,
                             [](Communicator& c, auto& gather, auto& reduce, auto& from, auto& to) {
                               c.grouped([&] {
                                 c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 8);
                                 c.all_gather(gather, {"gather", 1}, to.data() + 4, from.data(), 8);
                               });
                               reduce.fill(to.data() + 4, 1, 16);
                               gather.synchronize();
                               reduce.synchronize();
                             });
  for (const Ended& one : racy) EXPECT_THAT(one.words, HasSubstr("write after write"));
}

// A library that connects two ranks in their first transfer does so here, where both make it. Where
// copies serve, it is not asked at all, unless it must be there for what copies cannot do.
TEST(Nccl, ConnectsEachWayByATransferBeforeTheFirstStep) {
  struct Case {
    bool meets, weight_needs_library;
    int joined;
    std::string said_by_0, said_by_1;
  };
  for (const Case& one : {Case{false, false, 3, "svs", "vsv"}, Case{false, true, 3, "svs", "vsv"},
                          Case{true, true, 1, "s", "v"}, Case{true, false, 0, "", ""}}) {
    const TemporaryFolder folder;
    const auto ended =
        ended_of(Library::works, 20, folder, [&](Communicator& c, auto&, auto&, auto&, auto&) {
          FakeRanks::said = "";
          FakeRanks::introduced = one.meets;
          const int before = WithLibrary::joined;
          c.connect({{0, 1, "activation", 1},
                     {1, 0, "gradient", 1},
                     {0, 1, "weight", 1, one.weight_needs_library}});
          if (FakeRanks::said != (c.rank() == 0 ? one.said_by_0 : one.said_by_1))
            throw std::runtime_error(FakeRanks::said);
          const int joined = WithLibrary::joined - before;
          if (joined != one.joined || connected_ways(c).over_library != joined ||
              connected_ways(c).all != 3)
            throw std::runtime_error(std::to_string(joined) + " communicators");
          if (c.collectives != 0) throw std::runtime_error("the byte is counted");
        });
    for (const Ended& rank : ended) EXPECT_EQ(rank.status, 0) << rank.words;
  }
}

// One of three ranks has copy engines off: its ways alone have communicators of the library. Each
// rank knows of its own ways only, and none waits for a rank that is not part of a way.
TEST(Nccl, JoinsForTheWaysThatNeedItAlone) {
  const TemporaryFolder folder;
  const auto body = [](Communicator& c, auto&, auto&, auto&, auto&) {
    FakeRanks::introduced = c.rank() != 2;
    const int before = WithLibrary::joined;
    c.connect({{0, 1, "activation", 1},
               {1, 0, "gradient", 1},
               {1, 2, "activation", 1},
               {2, 1, "gradient", 1},
               {2, 0, "activation", 1},
               {0, 2, "gradient", 1, true}});
    const int joined = WithLibrary::joined - before, expected = c.rank() == 2 ? 4 : 2;
    if (joined != expected || connected_ways(c).all != 4)
      throw std::runtime_error(std::to_string(joined) + " communicators");
  };
  for (const Ended& one : ended_of(Library::works, 20, folder, body, 3))
    EXPECT_EQ(one.status, 0) << one.words;
}

// The ranks join the first of rank 0's communicators that all of them have, else a new one. The two
// ranks of a way ask each other alone.
TEST(Nccl, JoinsAgainWhatAllRanksStillHave) {
  const auto id = [](int number) { return CommunicatorId(128, static_cast<std::byte>(number)); };
  struct Case {
    std::vector<std::vector<int>> spares;  // A list for each rank.
    int ranks, way;                        // Joined again; 0: a new one.
  };
  const Case cases[] = {{{{}, {}, {}}, 0, 0},
                        {{{20, 21, 22}, {22, 21}, {21, 22}}, 21, 21},
                        {{{20}, {21}, {20, 21}}, 0, 0},
                        {{{}, {20}, {20}}, 0, 0},
                        {{{20}, {20}, {}}, 0, 20}};
  for (const Case& one : cases) {
    int self = 0;
    WithLibrary::spares = [&](int rank, int size) {
      if (size == 3) self = rank;
      std::vector<CommunicatorId> ids;
      for (const int number : one.spares[static_cast<std::size_t>(self)]) ids.push_back(id(number));
      return ids;
    };
    const auto body = [&](Communicator& c, auto&, auto&, auto&, auto&) {
      FakeRanks::introduced = false;
      c.connect({{0, 1, "activation", 1}});
      std::vector<CommunicatorId> expected;
      if (one.ranks != 0) expected.push_back(id(one.ranks));
      if (one.way != 0 && c.rank() < 2) expected.push_back(id(one.way));
      if (WithLibrary::joined_again != expected) throw std::runtime_error("other communicators");
    };
    const TemporaryFolder folder;
    for (const Ended& rank : ended_of(Library::works, 20, folder, body, 3))
      EXPECT_EQ(rank.status, 0) << rank.words;
  }
  WithLibrary::spares = nullptr;
}

// The communicator of all ranks, and that of a way.
TEST(Nccl, KeepsItsCommunicatorsInAProcessThatHasOtherRuns) {
  for (const bool has_others : {true, false}) {
    const TemporaryFolder folder;
    const auto segment = SharedMemoryStore::create({folder / "ranks"}, 2);
    Processes processes(2, [&](int rank) {
      if (has_others) keep_nccl_communicators();
      FakeRanks::introduced = false;
      SharedMemoryStore store({folder / "ranks"}, rank, 2, 20);
      Device device(std::make_unique<WithLibrary>(Library::works));
      make_nccl_communicator(device, store)->connect({{0, 1, "activation", 1}});
      return FakeRanks::kept == (has_others ? 2 : 0) ? 0 : 1;
    });
    for (const Ended& one : processes.end()) EXPECT_EQ(one.status, 0) << one.words;
  }
}

// The receiver takes the sender's offer where the two have met, and the stream of await_sent()
// waits for the reader. When all disconnect, what they have mapped goes.
TEST(Nccl, OffersMemoryToARankThatItHasMet) {
  for (const bool meets : {true, false}) {
    const TemporaryFolder folder;
    const auto ended =
        ended_of(Library::works, 20, folder,
                 [meets](Communicator& c, const Stream& gather, auto&, Floats& from, auto&) {
                   // Rank 1 alone introduces itself, or both do.
                   FakeRanks::introduced = meets || c.rank() == 1;
                   c.connect({{0, 1, "activation", 1}});
                   FakeRanks::said = "";
                   if (c.rank() == 0) {
                     c.send(gather, {"activation"}, from.data(), 16, 1);
                     c.await_sent(gather, 1);
                   } else {
                     c.receive(gather, {"activation"}, from.data(), 16, 0);
                   }
                   c.disconnect();
                   const std::string expected =
                       c.rank() == 0 ? (meets ? "oswu" : "su") : (meets ? "avu" : "vu");
                   if (FakeRanks::said != expected) throw std::runtime_error(FakeRanks::said);
                   gather.synchronize();
                 });
    for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
  }
}

// Memory that no other process can map goes over the library where the way has it; otherwise the
// sender says so, and the receiver that it has left.
TEST(Nccl, SendsOverTheLibraryWhatCannotBeMapped) {
  for (const bool has_library : {true, false}) {
    const TemporaryFolder folder;
    const auto body = [&](Communicator& c, const Stream& gather, auto&, Floats& from, auto&) {
      FakeRanks::introduced = 1;
      FakeRanks::offered = 0;
      c.connect({{0, 1, "weight", 1, has_library}});
      FakeRanks::said = "";
      if (c.rank() == 0) {
        c.send(gather, {"weight"}, from.data(), 16, 1);
      } else {
        c.receive(gather, {"weight"}, from.data(), 16, 0);
      }
      if (FakeRanks::said != (c.rank() == 0 ? "os" : "v"))
        throw std::runtime_error(FakeRanks::said);
      gather.synchronize();
    };
    const auto ended = ended_of(Library::works, 20, folder, body);
    if (has_library) {
      for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
    } else {
      EXPECT_THAT(ended[0].words, AllOf(HasSubstr("send of weight"),
                                        HasSubstr("LOCKSTEP_COPY_ENGINES=0 does without")));
      EXPECT_EQ(ended[1].status, 4);
      EXPECT_THAT(ended[1].words, HasSubstr("rank 0 has left"));
    }
  }
}

// Memory of the library's where every rank reaches every other's, and any where one does not.
TEST(Nccl, HasMemoryThatEveryRankReaches) {
  for (const bool together : {true, false}) {
    const TemporaryFolder folder;
    const auto ended = ended_of(
        Library::works, 20, folder, [&](Communicator& c, auto& gather, auto&, auto&, auto&) {
          FakeRanks::said = "";
          FakeRanks::reached = together || c.rank() == 0 ? "a machine" : "another machine";
          {
            c.reserve(96);
            const DeviceBuffer none = c.buffer(gather.device(), 0);
            const DeviceBuffer to = c.buffer(gather.device(), 64),
                               from = c.buffer(gather.device(), 32);
            if (none.data() != nullptr || from.data() == nullptr)
              throw std::runtime_error("no memory");
            gather.fill(from.data(), 0, 32);
            c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 32);
            gather.synchronize();
          }
          if (FakeRanks::said != (together ? "ammgrr" : "g"))
            throw std::runtime_error(FakeRanks::said);
          FakeRanks::reached = c.rank() == 0 ? "" : "a machine";
          const DeviceBuffer other = c.buffer(gather.device(), 16);
          if (FakeRanks::said != (together ? "ammgrr" : "g"))
            throw std::runtime_error(FakeRanks::said);
          if (c.collectives != 1) throw std::runtime_error("memory is counted as an exchange");
        });
    for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
  }
}

TEST(Nccl, ComparesMemoryBeforeTheLibraryIsAsked) {
  const TemporaryFolder folder;
  const auto ended =
      ended_of(Library::works, 20, folder, [](Communicator& c, auto& gather, auto&, auto&, auto&) {
        FakeRanks::said = "";
        FakeRanks::reached = "a machine";
        try {
          static_cast<void>(c.buffer(gather.device(), c.rank() == 0 ? 64 : 32));
        } catch (const CollectiveMismatch& error) {
          throw std::runtime_error(FakeRanks::said + error.what());
        }
      });
  for (const Ended& one : ended) {
    EXPECT_THAT(one.words, testing::StartsWith("ranks call different collectives: rank "));
    EXPECT_THAT(one.words, HasSubstr("meet for 32 bytes of memory"));
  }
}

TEST(Nccl, ReportsThatALibraryDoesNotComeBackWithMemory) {
  const TemporaryFolder folder;
  const auto ended = ended_of(Library::never_gives_memory, 1, folder,
                              [](Communicator& c, auto& gather, auto&, auto&, auto&) {
                                FakeRanks::reached = "a machine";
                                static_cast<void>(c.buffer(gather.device(), 64));
                              });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ended[static_cast<std::size_t>(rank)].status, 4);
    EXPECT_THAT(slurp(folder / ("stderr" + std::to_string(rank))),
                AllOf(HasSubstr("waits in collective 1, meet for 64 bytes of memory"),
                      HasSubstr("; LOCKSTEP_COPY_ENGINES=0 does without")));
  }
}

// Else the others would be in a call of the library that it does not make.
TEST(Nccl, AsksForNoMemoryThatARankHasNoRoomFor) {
  for (const bool ahead : {false, true}) {
    const TemporaryFolder folder;
    const auto ended = ended_of(Library::works, 20, folder,
                                [&](Communicator& c, auto& gather, auto&, auto&, auto&) {
                                  FakeRanks::said = "";
                                  FakeRanks::reached = "a machine";
                                  FakeRanks::roomy = c.rank() == 0;
                                  try {
                                    if (ahead) c.reserve(64);
                                    static_cast<void>(c.buffer(gather.device(), 64));
                                  } catch (const DeviceError& error) {
                                    if (error.code() != "cudaErrorMemoryAllocation") throw;
                                    throw std::runtime_error(FakeRanks::said + error.what());
                                  }
                                });
    for (const Ended& one : ended) {
      EXPECT_THAT(one.words,
                  testing::StartsWith(
                      "collective 1, meet for 64 bytes of memory, which rank 1 does not have"));
    }
  }
}

// Kernels of the library are called off with it; what copy engines wait for, nobody calls off.
TEST(Nccl, LeavesNoExchangeOfCopyEnginesBehindWhenARankFails) {
  for (const bool shared : {false, true}) {
    const TemporaryFolder folder;
    const auto ended = ended_of(
        Library::hangs, 3, folder, [&](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
          FakeRanks::reached = "a machine";
          if (shared) static_cast<void>(c.buffer(gather.device(), 64));
          for (const int unit : {0, 1})
            c.all_gather(gather, {"gather", unit}, to.data(), from.data(), 16);
          throw std::runtime_error("a rank fails");
        });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ended[static_cast<std::size_t>(rank)].status, shared ? 4 : 1);
      const std::string words = slurp(folder / ("stderr" + std::to_string(rank)));
      EXPECT_EQ(words.find("a collective is not done within the deadline") != std::string::npos,
                shared)
          << words;
    }
  }
}

// A rank that calls another of them makes none.
TEST(Nccl, ComparesAllThatIsMadeTogether) {
  const TemporaryFolder folder;
  const auto ended = ended_of(
      Library::works, 20, folder, [](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
        FakeRanks::said = "";
        try {
          c.grouped([&] {
            c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 8);
            c.all_gather(gather, {"gather", 1 + c.rank()}, to.data() + 4, from.data(), 8);
          });
        } catch (const CollectiveMismatch& error) {
          throw std::runtime_error(FakeRanks::said + error.what());
        }
      });
  for (const Ended& one : ended)
    EXPECT_THAT(one.words, testing::StartsWith("ranks call different collectives: rank "));
}

// A gather, and on another stream two exchanges as one launch.
TEST(Nccl, HoldsItsCallsInGraphs) {
  for (const bool ordered : {true, false}) {
    const TemporaryFolder folder;
    const auto ended =
        ended_of(Library::works, 20, folder,
                 [&](Communicator& c, auto& gather, auto& reduce, auto& from, auto& to) {
                   FakeRanks::said = "";
                   gather.synchronize();
                   c.all_gather(reduce, {"gather", 7}, to.data(), from.data(), 8);
                   const Event fork(gather.device()), join(gather.device());
                   gather.begin_capture();
                   gather.record(fork);
                   reduce.wait(fork);
                   c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 8);
                   c.grouped([&] {
                     for (const int unit : {0, 1})
                       c.all_to_all(reduce, {"reduce", unit}, from.data() + 4 * unit, to.data(), 8);
                   });
                   reduce.record(join);
                   gather.wait(join);
                   const Graph graph = gather.end_capture();
                   c.launch(gather, graph.ledger(), [&] { gather.launch(graph); });
                   if (ordered) c.all_gather(reduce, {"gather", 8}, to.data(), from.data(), 8);
                   if (!ordered) reduce.fill(to.data(), 1, 8);
                   gather.synchronize();
                   reduce.synchronize();
                   if (c.collectives != (ordered ? 5 : 4))
                     throw std::runtime_error("not counted once a launch");
                   if (FakeRanks::said != (ordered ? "gg(xx)lg" : "gg(xx)l"))
                     throw std::runtime_error(FakeRanks::said);
                 });
    for (const Ended& one : ended) {
      EXPECT_EQ(one.status, ordered ? 0 : 1) << one.words;
      EXPECT_THAT(one.words, HasSubstr(ordered ? "" : "is not ordered after"));
    }
  }
}

TEST(Nccl, ComparesGraphsBeforeTheyAreLaunched) {
  const TemporaryFolder folder;
  const auto ended = ended_of(
      Library::works, 20, folder, [](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
        gather.begin_capture();
        c.all_gather(gather, {"gather", 0}, to.data(), from.data(), c.rank() == 0 ? 8 : 16);
        const Graph graph = gather.end_capture();
        c.launch(gather, graph.ledger(), [&] { throw std::runtime_error("launched"); });
      });
  for (const Ended& one : ended) {
    EXPECT_THAT(one.words,
                HasSubstr("ranks would replay different collectives: call 0 of the graph: rank "));
  }
}

TEST(Nccl, EndsWhenAReplayIsNotDone) {
  const TemporaryFolder folder;
  const auto ended = ended_of(Library::hangs, 3, folder,
                              [](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
                                gather.begin_capture();
                                c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 16);
                                const Graph graph = gather.end_capture();
                                c.launch(gather, graph.ledger(), [&] { gather.launch(graph); });
                                for (;;) ::pause();
                              });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ended[static_cast<std::size_t>(rank)].status, 4);
    const std::string words = slurp(folder / ("stderr" + std::to_string(rank)));
    EXPECT_THAT(words, HasSubstr("a collective is not done within the deadline"));
    EXPECT_THAT(words,
                HasSubstr("rank 0 waits in collective 1, launch of a graph on stream gather"));
  }
}

// Others may still read the memory of a rank that left.
TEST(Nccl, LeavesWithTheOthers) {
  const TemporaryFolder folder;
  const auto ended =
      ended_of(Library::works, 20, folder, [&](Communicator& c, auto&, auto&, auto&, auto&) {
        FakeRanks::awaited = folder / "last";
        if (c.rank() == 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        static_cast<void>(folder.file("last", ""));
      });
  for (const Ended& one : ended) EXPECT_EQ(one.status, 0) << one.words;
}

TEST(Nccl, ReportsThatALibraryDoesNotComeBackFromJoining) {
  const TemporaryFolder folder;
  const auto ended =
      ended_of(Library::never_joins, 1, folder, [](Communicator&, auto&, auto&, auto&, auto&) {});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ended[static_cast<std::size_t>(rank)].status, 4);
    EXPECT_THAT(slurp(folder / ("stderr" + std::to_string(rank))),
                HasSubstr("waits in collective 0, meet"));
  }
}

TEST(Nccl, ComparesCallsBeforeTheyAreMade) {
  const TemporaryFolder folder;
  const auto ended = ended_of(
      Library::works, 20, folder, [](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
        c.all_gather(gather, {"gather", c.rank()}, to.data(), from.data(), 16);
      });
  for (const Ended& one : ended)
    EXPECT_THAT(one.words, HasSubstr("ranks call different collectives: rank "));
}

// The host waits for the device, where the call that rank 1 has no part in is never done. What is
// known of rank 1 ends rank 0 long before the deadline.
TEST(Nccl, EndsAtOnceWhenARankIsLost) {
  const TemporaryFolder folder;
  const auto start = std::chrono::steady_clock::now();
  const auto ended = ended_of(Library::hangs, 60, folder,
                              [&](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
                                c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 16);
                                c.all_gather(gather, {"gather", 1}, to.data(), from.data(), 16);
                                c.barrier();
                                if (c.rank() == 1) ::_exit(9);
                                SharedMemoryStore::tell_lost({folder / "ranks"}, 1, 2);
                                for (;;) ::pause();
                              });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(ended[0].status, 4) << ended[0].words;
  EXPECT_THAT(slurp(folder / "stderr0"),
              AllOf(HasSubstr("rank 1 has left: rank 0 waits in collective"),
                    HasSubstr("rank 1 was lost after collective")));
}

// The second call is never done: the host is in a wait that no library ends.
TEST(Nccl, EndsWhenACallIsNotDoneOrFails) {
  for (const Library library : {Library::hangs, Library::fails}) {
    const TemporaryFolder folder;
    const auto ended = ended_of(library, 3, folder,
                                [](Communicator& c, auto& gather, auto&, auto& from, auto& to) {
                                  c.all_gather(gather, {"gather", 0}, to.data(), from.data(), 16);
                                  c.all_gather(gather, {"gather", 1}, to.data(), from.data(), 16);
                                  for (;;) ::pause();
                                });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ended[static_cast<std::size_t>(rank)].status, 4);
      const std::string words = slurp(folder / ("stderr" + std::to_string(rank)));
      EXPECT_THAT(words, HasSubstr(library == Library::hangs
                                       ? "a collective is not done within the deadline"
                                       : "library: remote process exited"));
      EXPECT_THAT(
          words,
          HasSubstr(
              "rank 0 waits in collective 2, all_gather (gather of unit 1, 16 bytes a rank)"));
    }
  }
}

}  // namespace
}  // namespace lockstep::test
