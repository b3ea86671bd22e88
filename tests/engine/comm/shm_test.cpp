// Ranks that are processes: right bytes, calls compared, and a report within the deadline when a
// rank is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "engine/comm/ranks.h"
#include "engine/comm/store_communicator.h"
#include "harness/checker/checker.h"
#include "tests/engine/comm/collective_program.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/rendezvous/stores.h"
#include "tests/support/seed.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr double kDeadline = 20;  // For calls that all make: for a machine under load.

// A rank's communicator over the simulator, with a judge that goes on after a hazard.
struct OneRank {
  explicit OneRank(std::unique_ptr<Store> at, const SimOptions& sim = {})
      : store(std::move(at)),
        device(open_sim(sim), &checker),
        communicator(make_store_communicator(device, *store)) {}
  std::unique_ptr<Store> store;
  Checker checker{{.stop = false, .mutation = "", .dropped = {}}};
  Device device;
  std::unique_ptr<Communicator> communicator;
};

RC_GTEST_PROP(ShmProperty, ExchangesWhatTheDefinitionSaysOnEverySchedule, ()) {
  const int ranks = *rc::gen::inRange(2, 5);
  const CollectiveProgram program(ranks, *any_collective_steps());
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto expected = program.expected();
  const Stores stores(*rc::gen::element(Over::memory, Over::network), ranks);
  Processes processes(ranks, [&](int rank) {
    const Policy policy =
        all_policies()[(seed + static_cast<std::uint64_t>(rank)) % all_policies().size()];
    OneRank one(stores.join(rank, kDeadline), {.policy = policy, .seed = seed, .trace = nullptr});
    one.communicator->barrier();  // Even if the program is empty.
    const auto seen = program.run(*one.communicator, one.device);
    if (!one.checker.hazards().empty())
      throw std::runtime_error(text(one.checker.hazards().front()));
    return seen == expected[static_cast<std::size_t>(rank)] ? 0 : 2;
  });
  for (const Ended& ended : processes.end()) {
    if (ended.status != 0) RC_FAIL(std::to_string(ended.status) + " " + ended.words);
  }
}

// Two processes with two ranks each.
RC_GTEST_PROP(ShmProperty, ExchangesBetweenProcessesOfSeveralRanks, ()) {
  constexpr int kRanks = 4, kHere = 2;
  const CollectiveProgram program(kRanks, *any_collective_steps());
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto expected = program.expected();
  const Stores run(*rc::gen::element(Over::memory, Over::network), kRanks);
  Processes processes(kRanks / kHere, [&](int process) {
    std::vector<std::unique_ptr<Store>> stores;
    for (int rank = process * kHere; rank < (process + 1) * kHere; ++rank) {
      stores.push_back(run.join(rank, kDeadline));
    }
    Checker checker({.stop = false, .mutation = "", .dropped = {}});
    Device device(open_sim({.seed = seed, .trace = nullptr}), &checker);
    int right = 0;
    run_ranks(device, stores, seed, [&](Communicator& communicator) {
      communicator.barrier();
      const auto seen = program.run(communicator, device);
      right += seen == expected[static_cast<std::size_t>(communicator.rank())];
    });
    if (!checker.hazards().empty()) throw std::runtime_error(text(checker.hazards().front()));
    return right == kHere ? 0 : 2;
  });
  for (const Ended& ended : processes.end()) {
    if (ended.status != 0) RC_FAIL(std::to_string(ended.status) + " " + ended.words);
  }
}

class Shm : public testing::TestWithParam<Over> {};
INSTANTIATE_TEST_SUITE_P(Over, Shm, testing::Values(Over::memory, Over::network),
                         testing::PrintToStringParamName());

TEST_P(Shm, ARankThatEndsEarlyEndsItsProcess) {
  const Stores run(GetParam(), 2);
  std::vector<std::unique_ptr<Store>> stores;
  for (int rank = 0; rank < 2; ++rank) stores.push_back(run.join(rank, kDeadline));
  Device device(open_sim());
  EXPECT_THROW(
      run_ranks(device, stores, 1, [](Communicator& c) { c.rank() == 0 ? c.barrier() : void(); }),
      CollectiveHang);
}

// Parts that do not fit the outbox go in rounds.
TEST_P(Shm, ExchangesPartsOfAnySize) {
  constexpr int kRanks = 3;
  const std::size_t bytes = 2 * Store::kOutbox + 12;
  const Stores stores(GetParam(), kRanks);
  Processes processes(kRanks, [&](int rank) {
    OneRank one(stores.join(rank, kDeadline));
    const Stream stream(one.device, "gather");
    const DeviceBuffer from(one.device, kRanks * bytes), to(one.device, kRanks * bytes);
    const auto part = [&](const DeviceBuffer& buffer, int index) {
      return static_cast<std::byte*>(buffer.data()) + static_cast<std::size_t>(index) * bytes;
    };
    for (int peer = 0; peer < kRanks; ++peer) {
      for (std::size_t half = 0; half < 2; ++half) {
        stream.fill(part(from, peer) + half * (bytes / 2),
                    static_cast<std::uint8_t>(50 * half + 10 * rank + peer), bytes / 2);
      }
    }
    std::vector<unsigned char> seen(kRanks * bytes);
    const auto all_are = [&](auto value) {
      stream.copy(seen.data(), to.data(), seen.size(), CopyKind::device_to_host);
      for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] != value(static_cast<int>(i / bytes)) + (i % bytes < bytes / 2 ? 0 : 50))
          return false;
      }
      return true;
    };
    one.communicator->all_to_all(stream, {"reduce", 0}, to.data(), from.data(), bytes);
    if (!all_are([&](int peer) { return 10 * peer + rank; })) return 2;
    one.communicator->all_gather(stream, {"gather", 0}, to.data(), part(from, 1), bytes);
    if (!all_are([&](int peer) { return 10 * peer + 1; })) return 3;
    return one.communicator->collectives == 2 ? 0 : 4;
  });
  for (const Ended& ended : processes.end()) EXPECT_EQ(ended.status, 0) << ended.words;
}

TEST_P(Shm, TellsWordsOfAnyLength) {
  const Stores stores(GetParam(), 3);
  Processes processes(3, [&](int rank) {
    OneRank one(stores.join(rank, kDeadline));
    std::vector<std::string> expected{"", "short", std::string(2 * Store::kOutbox + 5, 'x')};
    for (int round = 0; round < 3; ++round) {
      const auto own = static_cast<std::size_t>(rank);
      if (one.communicator->all_gather_object(expected[own]) != expected) return 2;
      std::rotate(expected.begin(), expected.begin() + 1, expected.end());
    }
    return 0;
  });
  for (const Ended& ended : processes.end()) EXPECT_EQ(ended.status, 0) << ended.words;
}

// Each rank runs `body` with a short deadline; the words of all.
std::vector<Ended> ended_of(Over over, int ranks, double deadline,
                            const std::function<void(Communicator&, const Stream&)>& body) {
  const Stores stores(over, ranks);
  Processes processes(ranks, [&](int rank) {
    OneRank one(stores.join(rank, deadline));
    const Stream stream(one.device, "gather");
    one.communicator->barrier();
    body(*one.communicator, stream);
    return 0;
  });
  return processes.end();
}

TEST_P(Shm, ComparesCallsBeforeDataIsTrusted) {
  const auto ended = ended_of(GetParam(), 2, kDeadline, [](Communicator& c, const Stream& s) {
    c.all_gather(s, {"gather", 3 + c.rank()}, nullptr, nullptr, 0);
    c.all_gather(s, {"gather", 4 - c.rank()}, nullptr, nullptr, 0);
  });
  for (const Ended& one : ended) {
    EXPECT_EQ(one.status, 1);
    EXPECT_THAT(
        one.words,
        HasSubstr("rank 0 collective 1, all_gather (gather of unit 3, 0 bytes a rank) on stream"));
    EXPECT_THAT(
        one.words,
        HasSubstr("rank 1 collective 1, all_gather (gather of unit 4, 0 bytes a rank) on stream"));
  }
}

TEST_P(Shm, ReportsAtOnceWhoHasLeft) {
  const Clock::time_point start = Clock::now();
  const auto ended = ended_of(GetParam(), 3, 60, [](Communicator& c, const Stream& s) {
    if (c.rank() == 1) return;
    if (c.rank() == 2) throw std::runtime_error("its own failure");
    c.all_gather(s, {"gather", 7}, nullptr, nullptr, 0);
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(ended[0].status, 4);
  EXPECT_THAT(ended[0].words,
              HasSubstr(" has left: rank 0 waits in collective 1, all_gather (gather of unit 7, 0 "
                        "bytes a rank) on stream gather; rank 1"));
  EXPECT_EQ(ended[1].status, 0);
  EXPECT_EQ(ended[2].words, "its own failure");
}

// Three ranks while they call; `missing` gets no further than `calls` of its own.
class Calling {
 public:
  Calling(Over over, double deadline, int missing, int calls)
      : start_(Clock::now()), deadline_(deadline), missing_(missing), stores_(over, kRanks) {
    processes_.emplace(kRanks, [&](int rank) {
      OneRank one(stores_.join(rank, deadline));
      const Stream stream(one.device, "reduce");
      for (int i = 0;; ++i) {
        while (rank == missing && i == calls) ::pause();
        one.communicator->all_to_all(stream, {"reduce", i}, nullptr, nullptr, 0);
      }
      return 0;
    });
  }
  void kill() { processes_->kill(missing_); }
  // The others leave with a report, in time.
  std::vector<std::string> reports() {
    std::vector<std::string> words;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == missing_) continue;
      const Ended ended = processes_->wait(rank);
      EXPECT_EQ(ended.status, 4) << ended.words;
      EXPECT_LT(Clock::now() - start_, std::chrono::duration<double>(deadline_ + 20));
      words.push_back(ended.words);
    }
    kill();
    EXPECT_EQ(processes_->wait(missing_).status, -1);
    return words;
  }

 private:
  static constexpr int kRanks = 3;
  Clock::time_point start_;
  double deadline_;
  int missing_;
  Stores stores_;
  std::optional<Processes> processes_;
};

TEST_P(Shm, ReportsWhoIsMissingAtTheDeadline) {
  const std::vector<std::string> words = Calling(GetParam(), 2, 1, 2).reports();
  EXPECT_THAT(
      words,
      testing::Each(HasSubstr("rank 1 was last in collective 1, all_to_all (reduce of unit 1, ")));
  EXPECT_THAT(words.front(), testing::StartsWith("rank 1 did not come within 2 s: rank 0 "));
  // Over a network rank 0 may have said so and left before.
  EXPECT_THAT(
      words.back(),
      testing::AnyOf(testing::StartsWith("rank 1 did not come within 2 s: rank 0 "),
                     testing::StartsWith(GetParam() == Over::network ? "rank 0 has left: " : "-")));
  EXPECT_THAT(
      words.front(),
      HasSubstr("rank 0 waits in collective 2, all_to_all (reduce of unit 2, 0 bytes a rank) on "
                "stream reduce; rank 1 was"));
}

TEST_P(Shm, ReportsWhoNeverCame) {
  const std::vector<std::string> words = Calling(GetParam(), 2, 2, 0).reports();
  EXPECT_THAT(words, testing::Each(HasSubstr("rank 2 was last in no collective")));
}

// LOCKSTEP_KILLS of them, at random moments.
TEST_P(Shm, ReportsAKilledRank) {
  std::mt19937_64 random(test_seed());
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  for (int left = wanted ? std::atoi(wanted) : 3; left > 0; --left) {
    const int killed = static_cast<int>(random() % 3);
    Calling calling(GetParam(), 2, killed, -1);
    if (GetParam() == Over::network)
      std::this_thread::sleep_for(std::chrono::seconds(1));  // All have come.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50'000));
    calling.kill();
    const std::string missing =
        "rank " + std::to_string(killed) +
        (GetParam() == Over::memory ? " did not come within 2 s: rank 0 " : " has left: rank 0 ");
    EXPECT_THAT(calling.reports(), testing::Each(testing::StartsWith(missing)));
  }
}

}  // namespace
}  // namespace lockstep::test
