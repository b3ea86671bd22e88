// Virtual ranks and what they exchange: right bytes on every schedule, every wait needed and seen,
// and a clear report when ranks do not call the same.
#include "engine/comm/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <thread>

#include "engine/comm/turnstile.h"
#include "harness/checker/checker.h"
#include "tests/engine/comm/collective_program.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

// A device with a judge that goes on after a hazard.
struct Judged {
  explicit Judged(const SimOptions& sim, CallInterceptor* interceptor = nullptr)
      : device(open_sim(sim), &checker, {}, interceptor) {}
  Checker checker{{.stop = false, .mutation = "", .dropped = {}}};
  Device device;
};

std::string what_is_thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const CollectiveMismatch& error) {
    return std::string("mismatch: ") + error.what();
  } catch (const CollectiveHang& error) {
    return std::string("hang: ") + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

RC_GTEST_PROP(Ranks, ExchangeWhatTheDefinitionSaysOnEverySchedule, ()) {
  const int ranks = *rc::gen::inRange(1, 5);
  std::vector<CollectiveStep> steps = *any_collective_steps();
  if (ranks == 1)
    std::erase_if(steps,
                  [](const CollectiveStep& s) { return s.stream != 0; });  // No queue joins them.
  const CollectiveProgram program(ranks, steps);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto expected = program.expected();
  for (const Policy policy : all_policies()) {
    Judged judged({.policy = policy, .seed = seed, .trace = nullptr});
    std::vector<std::vector<std::vector<unsigned char>>> seen(static_cast<std::size_t>(ranks));
    run_ranks(judged.device, ranks, seed, [&](Communicator& communicator) {
      seen[static_cast<std::size_t>(communicator.rank())] =
          program.run(communicator, judged.device);
    });
    RC_ASSERT(seen == expected);
    for (const Hazard& hazard : judged.checker.hazards()) RC_FAIL(text(hazard));
  }
}

TEST(Ranks, RunOneAtATimeInAnOrderThatTheSeedChooses) {
  const auto order = [](std::uint64_t seed) {
    Judged judged({});
    std::vector<int> said;  // Unguarded: exactly one rank runs at a time.
    run_ranks(judged.device, 4, seed, [&](Communicator& communicator) {
      EXPECT_EQ(communicator.size(), 4);
      for (int round = 0; round < 6; ++round) {
        said.push_back(communicator.rank());
        std::this_thread::yield();
        said.push_back(communicator.rank());
        communicator.barrier();
      }
    });
    return said;
  };
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<int> said = order(seed);
    EXPECT_EQ(said, order(seed));
    ASSERT_EQ(said.size(), 48u);
    for (std::size_t turn = 0; turn < said.size(); turn += 2) EXPECT_EQ(said[turn], said[turn + 1]);
    for (std::size_t round = 0; round < said.size(); round += 8) {
      const auto first = said.begin() + static_cast<long>(round);
      EXPECT_EQ(std::set<int>(first, first + 8).size(), 4u);
    }
    orders.insert(said);
  }
  EXPECT_EQ(orders.size(), 10u);
}

TEST(Ranks, KeepTheirPlaceWhileOthersRun) {
  Judged judged({});
  run_ranks(judged.device, 3, 1, [&](Communicator& communicator) {
    EXPECT_EQ(judged.device.place.rank, communicator.rank());
    judged.device.place.step = 10 + communicator.rank();
    communicator.barrier();
    EXPECT_EQ(judged.device.place.step, 10 + communicator.rank());
  });
  EXPECT_EQ(judged.device.place.step, -1);
}

TEST(Ranks, TellEachOther) {
  for (const int ranks : {1, 3}) {
    Judged judged({});
    run_ranks(judged.device, ranks, 1, [&](Communicator& communicator) {
      for (int round = 0; round < 5; ++round) {
        std::vector<std::string> expected;
        for (int rank = 0; rank < ranks; ++rank)
          expected.push_back(std::string(static_cast<std::size_t>(rank * round), 'x'));
        const std::size_t own = static_cast<std::size_t>(communicator.rank());
        EXPECT_EQ(communicator.all_gather_object(expected[own]), expected);
      }
    });
  }
}

TEST(Ranks, CountCollectivesAndNotMeetings) {
  for (const int ranks : {1, 3}) {
    Judged judged({});
    run_ranks(judged.device, ranks, 1, [&](Communicator& communicator) {
      const Stream stream(judged.device, "gather");
      communicator.all_gather(stream, {"gather", 0}, nullptr, nullptr, 0);
      communicator.barrier();
      communicator.all_to_all(stream, {"reduce", 0}, nullptr, nullptr, 0);
      EXPECT_EQ(communicator.collectives, 2);
    });
  }
}

TEST(Ranks, ACapturedCollectiveCountsOnceALaunch) {
  Judged judged({});
  const auto lone = make_self_communicator(judged.device);
  const Stream stream(judged.device, "gather");
  const Floats from(judged.device, 4), to(judged.device, 4);
  write(stream, from, 3);
  stream.begin_capture();
  lone->all_gather(stream, {"gather", 0}, to.data(), from.data(), to.bytes());
  const Graph graph = stream.end_capture();
  Ledger now;
  {
    const Device::RecordOnly dry(judged.device, now);
    lone->all_gather(stream, {"gather", 0}, to.data(), from.data(), to.bytes());
  }
  EXPECT_EQ(difference(graph.ledger(), now), "");
  EXPECT_EQ(lone->collectives, 0);
  for (int launch = 0; launch < 3; ++launch) stream.launch(graph);
  EXPECT_EQ(read(stream, to), std::vector<float>(4, 3.0f));
  EXPECT_EQ(lone->collectives, 3);
  EXPECT_TRUE(judged.checker.hazards().empty());
}

// ---- What goes wrong ----------------------------------------------------------------------------

// Leaves one wait out.
class DropsAWait final : public CallInterceptor {
 public:
  explicit DropsAWait(int dropped) : dropped_(dropped) {}
  std::vector<IssuedCall> instead_of(const IssuedCall& call, bool) override {
    if (call.as<WaitCall>() && waits++ == dropped_) return {};
    return {call};
  }
  int waits = 0;

 private:
  int dropped_;
};

// Leaves out what comes first on each stream of a name.
class DropsFirstWaits final : public CallInterceptor {
 public:
  explicit DropsFirstWaits(std::string name) : name_(std::move(name)) {}
  void created_stream(int stream, const char* name) override {
    if (name == name_) streams_.insert(stream);
  }
  std::vector<IssuedCall> instead_of(const IssuedCall& call, bool) override {
    if (call.as<WaitCall>() && streams_.erase(call.stream) > 0) return {};
    return {call};
  }

 private:
  std::string name_;
  std::set<int> streams_;
};

// The checker has to see each wait that is left out. Returns how many there are.
int waits_needed(int ranks, const std::function<void(Communicator&, Device&)>& body) {
  int waits = 1;
  for (int dropped = -1; dropped < waits; ++dropped) {
    DropsAWait interceptor(dropped);
    Judged judged({.policy = Policy::program, .trace = nullptr}, &interceptor);
    run_ranks(judged.device, ranks, 1, [&](Communicator& c) { body(c, judged.device); });
    EXPECT_EQ(judged.checker.hazards().empty(), dropped < 0)
        << "wait " << dropped << " of " << interceptor.waits;
    waits = interceptor.waits;
  }
  return waits;
}

// Writes, exchanges, and writes again what the others have read.
template <auto exchange>
void write_twice(Communicator& communicator, Device& device) {
  const Floats a(device, communicator.size()), b(device, communicator.size());
  const Stream stream(device, "gather");
  stream.fill(a.data(), 1, a.bytes());
  (communicator.*exchange)(stream, {"gather", 0}, b.data(), a.data(), sizeof(float));
  stream.fill(a.data(), 2, a.bytes());
  stream.synchronize();
}

// The same, behind a wait of each rank's own host for all that it has done: nobody else has waited
// for that.
void write_and_wait_for_it(Communicator& communicator, Device& device) {
  const Floats a(device, communicator.size()), b(device, communicator.size());
  const Stream stream(device, "gather");
  stream.fill(a.data(), 1, a.bytes());
  stream.synchronize();
  communicator.all_gather(stream, {"gather", 0}, b.data(), a.data(), sizeof(float));
  stream.synchronize();
}

TEST(Ranks, NeedEveryWaitAndTheCheckerSeesEachThatIsDropped) {
  for (const int ranks : {2, 3}) {
    const int all =
        2 * ranks *
        (ranks - 1);  // Before a peer's part is read, and before the own part is written again.
    EXPECT_EQ(waits_needed(ranks, write_twice<&Communicator::all_gather>), all);
    EXPECT_EQ(waits_needed(ranks, write_twice<&Communicator::all_to_all>), all);
    EXPECT_EQ(waits_needed(ranks, write_and_wait_for_it), all);
  }
}

// A barrier in between is an edge: what the host of the writer has waited for before, all hosts
// have.
TEST(Ranks, NeedNoWaitForWhatAHostWaitedForBeforeTheyMet) {
  for (const bool met : {false, true}) {
    DropsFirstWaits interceptor("gather");
    Judged judged({.policy = Policy::program, .trace = nullptr}, &interceptor);
    run_ranks(judged.device, 2, 1, [&](Communicator& communicator) {
      const Floats a(judged.device, 2), b(judged.device, 2);
      const Stream stream(judged.device, "gather");
      stream.fill(a.data(), 1, a.bytes());
      stream.synchronize();
      if (met) communicator.barrier();
      if (!met) communicator.all_gather_object("a question of a judge");
      communicator.all_gather(stream, {"gather", 0}, b.data(), a.data(), sizeof(float));
      stream.synchronize();
    });
    EXPECT_EQ(judged.checker.hazards().empty(), met);
    for (const Hazard& hazard : judged.checker.hazards()) {
      EXPECT_THAT(text(hazard), HasSubstr("Missing edge: gather -> gather. Event "));
    }
  }
}

// The second call continues from the first, on another stream.
void exchange_twice(Communicator& communicator, Device& device) {
  const Floats a(device, communicator.size()), b(device, communicator.size()),
      c(device, communicator.size());
  const Stream gather(device, "gather"), reduce(device, "reduce");
  gather.fill(a.data(), 1, a.bytes());
  communicator.all_gather(gather, {"gather", 0}, b.data(), a.data(), sizeof(float));
  communicator.all_to_all(reduce, {"reduce", 0}, c.data(), b.data(), sizeof(float));
  communicator.barrier();
  gather.synchronize();
  reduce.synchronize();
}

TEST(Ranks, CallOneAfterTheOtherOnWhateverStream) {
  for (const char* dropped : {"none", "reduce"}) {
    DropsFirstWaits interceptor(dropped);
    Judged judged({.policy = Policy::program, .trace = nullptr}, &interceptor);
    run_ranks(judged.device, 2, 1, [&](Communicator& c) { exchange_twice(c, judged.device); });
    EXPECT_EQ(judged.checker.hazards().empty(), std::string(dropped) == "none");
  }
}

// Calls of two ranks that differ in one thing.
std::string said_of(const std::function<void(Communicator&, const Stream&)>& body) {
  Judged judged({});
  return what_is_thrown([&] {
    run_ranks(judged.device, 2, 1, [&](Communicator& communicator) {
      const Stream stream(judged.device, "gather");
      communicator.barrier();
      body(communicator, stream);
    });
  });
}

TEST(Ranks, CompareTheirCallsBeforeDataIsTrusted) {
  const auto rank = [](Communicator& c) { return c.rank(); };
  std::string said = said_of([&](Communicator& c, const Stream& s) {  // An equal-shape swap.
    c.all_gather(s, {"gather", 3 + rank(c)}, nullptr, nullptr, 0);
    c.all_gather(s, {"gather", 4 - rank(c)}, nullptr, nullptr, 0);
  });
  EXPECT_THAT(said, HasSubstr("mismatch: ranks call different collectives: rank "));
  EXPECT_THAT(
      said,
      HasSubstr(
          "rank 0 collective 1, all_gather (gather of unit 3, 0 bytes a rank) on stream gather"));
  EXPECT_THAT(
      said,
      HasSubstr(
          "rank 1 collective 1, all_gather (gather of unit 4, 0 bytes a rank) on stream gather"));
  said = said_of([&](Communicator& c, const Stream& s) {
    c.all_gather(s, {rank(c) ? "norm" : "losses"}, nullptr, nullptr, 0);
  });
  EXPECT_THAT(said, HasSubstr("all_gather (norm, 0 bytes a rank)"));
  said = said_of([&](Communicator& c, const Stream& s) {
    rank(c) ? c.all_to_all(s, {"x"}, nullptr, nullptr, 0)
            : c.all_gather(s, {"x"}, nullptr, nullptr, 0);
  });
  EXPECT_THAT(said, HasSubstr("all_to_all (x"));
  said = said_of([&](Communicator& c, const Stream& s) {
    const Floats to(s.device(), 4), from(s.device(), 4);
    s.fill(from.data(), 0, from.bytes());
    c.all_gather(s, {"x"}, to.data(), from.data(), c.rank() ? 4 : 8);
  });
  EXPECT_THAT(said, HasSubstr("4 bytes a rank"));
  EXPECT_THAT(said, HasSubstr("8 bytes a rank"));
  said = said_of([&](Communicator& c, const Stream& s) {
    rank(c) ? c.barrier() : c.all_gather(s, {"x"}, nullptr, nullptr, 0);
  });
  EXPECT_THAT(said, HasSubstr("collective 1, meet"));
}

TEST(Ranks, SayWhoWaitsWhereWhenOneEndsEarly) {
  const std::string said = said_of([](Communicator& c, const Stream& s) {
    if (c.rank() == 1) return;
    c.all_gather(s, {"gather", 5}, nullptr, nullptr, 0);
  });
  EXPECT_EQ(said,
            "hang: ranks wait for one that has ended: rank 0 waits in collective 1, all_gather "
            "(gather of unit 5, 0 bytes "
            "a rank) on stream gather; rank 1 has ended after collective 0, meet");
}

// Each rank owns memory while it waits; all of it is gone when run_ranks returns.
TEST(Ranks, EndTogetherWhenOneOfThemThrows) {
  for (int thrower = 0; thrower < 3; ++thrower) {
    for (int round = 0; round < 3; ++round) {
      Judged judged({});
      int ended = 0, began = 0;
      const std::string said = what_is_thrown([&] {
        run_ranks(judged.device, 3, static_cast<std::uint64_t>(round),
                  [&](Communicator& communicator) {
                    struct Counts {
                      ~Counts() { ++count; }
                      int& count;
                    } counts{ended};
                    ++began;
                    const Floats memory(judged.device, 100);
                    for (int i = 0; i < 3; ++i) {
                      if (communicator.rank() == thrower && i == round)
                        throw DeviceError("cudaErrorMemoryAllocation", "allocate");
                      communicator.barrier();
                    }
                  });
      });
      EXPECT_THAT(said, HasSubstr("cudaErrorMemoryAllocation"));
      EXPECT_EQ(ended, began);
      EXPECT_TRUE(round == 0 || began == 3);
      EXPECT_EQ(judged.device.backend().memory_in_use(), 0u);
    }
  }
}

TEST(Ranks, AreAsUsableAfterAFailureAsBefore) {
  Judged judged({});
  EXPECT_THROW(run_ranks(judged.device, 2, 1,
                         [](Communicator& c) {
                           if (c.rank() == 0) throw std::runtime_error("first");
                           c.barrier();
                         }),
               std::runtime_error);
  run_ranks(judged.device, 2, 1, [&](Communicator& c) { exchange_twice(c, judged.device); });
  EXPECT_TRUE(judged.checker.hazards().empty());
}

using RanksDeathTest = testing::Test;
TEST(RanksDeathTest, MeetOutsideOfCaptures) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Judged judged({});
  EXPECT_DEATH(run_ranks(judged.device, 2, 1,
                         [&](Communicator& c) {
                           const Stream stream(judged.device, "compute");
                           stream.begin_capture();
                           c.barrier();
                         }),
               "ranks meet outside of captures and dry runs");
}

// Where the machine has no memory for the second thread, the first one must not wait for it.
TEST(Ranks, EndWhereOneCannotBeStarted) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Turnstile turnstile(3, seed);
    std::thread first([&] {
      const bool begins = turnstile.begin(0);
      if (begins) {
        EXPECT_NE(turnstile.arrive_and_wait(0), Turnstile::Outcome::all);
      }
      turnstile.end(0, !begins);
    });
    turnstile.cannot_begin(1);
    first.join();
  }
}

}  // namespace
}  // namespace lockstep::test
