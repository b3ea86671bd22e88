// Ranks on two machines, as a launcher starts them there: the bits are those of one machine,
// whatever the cable does; a run that cannot go on ends within the deadline with a report and exit
// status 4.
#include "tests/harness/network/two_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/support/program.h"
#include "tests/support/seed.h"
#include "tests/support/started.h"

namespace lockstep {
namespace {

using Seconds = std::chrono::duration<double>;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class OnTwoMachines : public testing::Test {
 protected:
  // Tries of what is drawn: one, or LOCKSTEP_NETWORK_ROUNDS.
  static int rounds() {
    const char* wanted = std::getenv("LOCKSTEP_NETWORK_ROUNDS");
    return wanted ? std::atoi(wanted) : 1;
  }
  // Four global microbatches a step.
  std::string file(int ranks) const {
    const std::string number = std::to_string(ranks);
    return folder_.file(number + ".yaml",
                        "schema: 1\nname: ranks\nmodel: {pattern: \"M*-*-\"}\n"
                        "training: {steps: 4, microbatches: " +
                            std::to_string(4 / ranks) +
                            "}\nfsdp: {strategy: optim_grads_params}\n"
                            "data: {documents: [[[17, 1, 0, 30], [5, 16, 33], [3, 3], [9, 8]], "
                            "[[64], [3, 4, 20, 15, 9], [1], [2, 7]]]}\n"
                            "parallel: {data: " +
                            number + ", transport: auto}\n");
  }
  // The digest of the last step of an undisturbed run on one rank.
  std::string digest(int steps) const {
    const Ran ran =
        run_lockstep("train --device sim --quiet --steps " + std::to_string(steps) + " " + file(1));
    EXPECT_EQ(ran.status, 0) << ran.err;
    return digest_in(ran.out);
  }
  static std::string digest_in(const std::string& out) {
    const std::size_t at = out.rfind("weights ");
    return at == std::string::npos ? "none in " + out : out.substr(at, 8 + 32);
  }

  // Starts a job: the first half of its ranks at machine 0, the others at machine 1.
  void start(int ranks, const std::string& words) {
    ranks_.clear();
    said_.clear();
    ++job_;
    const std::string all_words = words + " " + file(ranks);
    for (int rank = 0; rank < ranks; ++rank) add(rank, ranks, all_words);
  }
  void add(int rank, int ranks, const std::string& words) {
    const int local = ranks / 2, machine = rank / local;
    said_.push_back(folder_ / (std::to_string(job_) + "-" + std::to_string(rank)));
    ranks_.push_back(std::make_unique<Started>(
        "train --device sim --quiet " + words, 0, said_.back(), [=, this] {
          const auto say = [](const char* name, const std::string& value) {
            ::setenv(name, value.c_str(), 1);
          };
          say("RANK", std::to_string(rank));
          say("WORLD_SIZE", std::to_string(ranks));
          say("LOCAL_RANK", std::to_string(rank % local));
          say("LOCAL_WORLD_SIZE", std::to_string(local));
          say("MASTER_ADDR", test::TwoMachines::address(0));
          say("MASTER_PORT", "29500");
          say("LOCKSTEP_MEETING_KEY", std::string(32, 'k'));
          machines_.enter(machine);
        }));
  }
  std::string said(int rank) const { return slurp(said_[static_cast<std::size_t>(rank)]); }
  int status(int rank) { return ranks_[static_cast<std::size_t>(rank)]->exit_status(); }
  void kill(int rank) { EXPECT_TRUE(ranks_[static_cast<std::size_t>(rank)]->kill_now()); }
  void await_step(int step) const {
    EXPECT_TRUE(comes_true([&] { return last_step() >= step; })) << said(0);
  }
  // The last step that rank 0 has told.
  int last_step() const {
    const std::string out = said(0);
    const std::size_t at = out.rfind("step ");
    return at == std::string::npos ? 0 : std::atoi(out.c_str() + at + 5);
  }
  // All ranks end well, with the digest that the undisturbed run has.
  void expect_digest(const std::string& digest) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      EXPECT_EQ(status(static_cast<int>(rank)), 0) << rank << ": " << said(static_cast<int>(rank));
    EXPECT_EQ(digest_in(said(0)), digest) << said(0);
  }
  // Every rank but the killed one ends with status 4, a report of all ranks, and no digest.
  void expect_verdicts(int killed, double most_seconds) {
    const auto start = std::chrono::steady_clock::now();
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(status(rank), 4) << rank << ": " << said(rank);
      EXPECT_THAT(said(rank), ContainsRegex("lockstep: rank [0-3]: rank [0-3] (did not come within "
                                            "[0-9]+ s|has left): rank 0 .*; rank 1 "));
      EXPECT_THAT(said(rank), Not(HasSubstr("nats a token")));
    }
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - start).count(), most_seconds);
  }

  const std::uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
  TemporaryFolder folder_;
  test::TwoMachines machines_{seed_};
  int job_ = 0;
  std::vector<std::string> said_;
  std::vector<std::unique_ptr<Started>> ranks_;
};

TEST_F(OnTwoMachines, HaveTheBitsOfOneMachine) {
  const std::string one = digest(8);
  for (const int ranks : {2, 4}) {
    const std::int64_t before = machines_.cable().passed();
    start(ranks, "--steps 8 --deadline 30");
    expect_digest(one);
    // Every step crosses the cable.
    EXPECT_GT(machines_.cable().passed(), before + 8 * 10);
  }
}

TEST_F(OnTwoMachines, GoOnWhenTheCableIsBack) {
  constexpr int kSteps = 400;
  const std::string undisturbed = digest(kSteps);
  for (int left = 2 * rounds(); left > 0; --left) {
    const bool silent = left % 2 == 0;  // Out in a switch far away, or pulled at the machines.
    start(4, "--steps 400 --deadline 30 --digest-every 10");
    await_step(10);
    silent ? machines_.cable().is_in({.lost_percent = 100}) : machines_.pull_cable();
    pause_ms(300);
    const int step = last_step();
    EXPECT_LT(step, kSteps);
    pause_ms(left > 2 ? 1000 + static_cast<int>(random_() % 9000) : silent ? 8000 : 2000);
    EXPECT_EQ(last_step(), step);  // Nothing goes on without the other machine.
    machines_.cable().is_in({});
    machines_.plug_cable_in();
    const auto back = std::chrono::steady_clock::now();
    await_step(step + 1);
    // The system's own times would have become as long as the cable was out.
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - back).count(), 4);
    expect_digest(undisturbed);
  }
}

// A packet that asks for a connection is lost as others are.
TEST_F(OnTwoMachines, MeetWithinSecondsOnceTheyHearEachOther) {
  machines_.cable().is_in({.lost_percent = 100});
  start(2, "--steps 8 --deadline 40");
  pause_ms(12000);  // The system asks 11 and 19 s after the first time, or 7 and 15.
  machines_.cable().is_in({});
  const auto heard = std::chrono::steady_clock::now();
  expect_digest(digest(8));
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - heard).count(), 5);
}

TEST_F(OnTwoMachines, ReportACableThatStaysPulled) {
  for (const bool silent : {false, true}) {  // Without a carrier, or in a switch far away.
    start(4, "--steps 1000000 --deadline 3 --digest-every 10");
    await_step(10);
    silent ? machines_.cable().is_in({.lost_percent = 100}) : machines_.pull_cable();
    expect_verdicts(-1, 3 + 5);
    // Each machine names the other one. The last words of one of its ranks may have come across.
    EXPECT_THAT(said(0) + said(1), ContainsRegex(": rank [23] did not come within 3 s: "));
    EXPECT_THAT(said(2) + said(3), HasSubstr(": rank 0 did not come within 3 s: "));
    EXPECT_THAT(said(2), ContainsRegex("rank 0 was silent after .*; rank 2 waits in "));
    machines_.cable().is_in({});
    machines_.plug_cable_in();
  }
}

TEST_F(OnTwoMachines, HaveTheSameBitsWherePacketsAreLost) {
  const std::string one = digest(6);
  for (int left = rounds(); left > 0; --left) {
    machines_.cable().is_in({.lost_percent = left == 1 ? 8 : 5 + static_cast<int>(random_() % 16),
                             .repeated_percent = 5,
                             .jitter_ms = 3});
    const std::int64_t before = machines_.cable().lost();
    start(left % 2 == 0 ? 2 : 4, "--steps 6 --deadline 60");
    expect_digest(one);
    EXPECT_GT(machines_.cable().lost(), before);
  }
}

TEST_F(OnTwoMachines, HaveTheSameBitsWherePacketsAreLateBySeconds) {
  constexpr int kSteps = 300;
  machines_.cable().is_in({.delay_ms = 300});
  start(2, "--steps 300 --deadline 30 --digest-every 10");
  pause_ms(2500);
  machines_.cable().is_in({});
  await_step(10);
  machines_.cable().is_in({.delay_ms = 1500, .jitter_ms = 500});
  pause_ms(4000);
  machines_.cable().is_in({});
  expect_digest(digest(kSteps));
}

TEST_F(OnTwoMachines, AreToldOfAKilledRank) {
  for (int left = rounds(); left > 0; --left) {
    const int ranks = 4, lost = static_cast<int>(random_() % ranks);
    start(ranks, "--steps 1000000 --deadline 20 --digest-every 10");
    await_step(10);
    pause_ms(static_cast<int>(random_() % 100));
    kill(lost);
    expect_verdicts(lost, 5);  // At once, not at the deadline.
    const std::string name = "rank " + std::to_string(lost) + " has left: ";
    EXPECT_THAT(said(lost == 0 ? 2 : 0), HasSubstr(name));
  }
}

TEST_F(OnTwoMachines, ResumeWithTheBitsOfAnUndisturbedRunAfterRank0WasKilled) {
  const std::string checkpoint = folder_ / "checkpoint";
  const std::string words =
      "--deadline 10 --digest-every 1 --checkpoint-every 5 --checkpoint " + checkpoint;
  start(4, "--steps 1000000 " + words);
  await_step(11);
  kill(0);
  expect_verdicts(0, 5);
  const int step = last_step();
  // The same port, at once.
  start(4, "--steps " + std::to_string(step + 20) + " " + words + " --resume " + checkpoint);
  expect_digest(digest(step + 20));
  EXPECT_THAT(said(0), Not(HasSubstr("step 5 ")));  // It did not begin anew.
}

}  // namespace
}  // namespace lockstep
