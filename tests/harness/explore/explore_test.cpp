// Schedules without arithmetic: that they are schedules, that equal seeds give equal ones, and that
// they find exactly what the checker calls a hazard.
#include "harness/explore/explore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "engine/device/log_uniform.h"
#include "harness/checker/checker.h"
#include "harness/explore/recorder.h"
#include "tests/harness/checker/ordered_calls.h"

namespace lockstep::test {
namespace {

using Kind = ExploreOptions::Policy;

ExploreOptions pct(std::int64_t count, int depth = 1) {
  return {.policy = Kind::pct, .depth = depth, .count = count, .delays = {}};
}

class Recorded {
 public:
  Recorded(std::uint64_t seed, std::int64_t care)
      : checker_({.stop = false, .notes_edges = true, .dropped = {}}), log_(checker_) {
    OrderedCalls(log_, seed, care).run(8 + static_cast<int>(seed % 33));
  }
  const CallLog& log() const { return log_; }
  const std::map<Edge, EdgeUse>& edges() const { return checker_.edges(); }
  bool is_hazardous(const std::set<Edge>& dropped = {}) const {
    Checker checker({.stop = false, .dropped = dropped});
    log_.tell(checker);
    return std::any_of(checker.hazards().begin(), checker.hazards().end(),
                       [](const Hazard& h) { return h.earlier && h.kind != HazardKind::overlap; });
  }

 private:
  Checker checker_;
  CallLog log_;
};

TEST(Explore, EveryScheduleKeepsTheOrderThatEdgesForce) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Program program = program_of(Recorded(seed, 2).log());
    Explorer explorer(program);
    for (const Kind policy : {Kind::program, Kind::random, Kind::pct}) {
      for (const bool delayed : {false, true}) {
        ExploreOptions options{.policy = policy, .depth = 3, .delays = {}};
        if (delayed) options.delays = {{"b", 20}};
        explorer.run(options, seed);
        ASSERT_EQ(explorer.order().size(), static_cast<std::size_t>(program.size()));
        std::vector<int> place(explorer.order().size()), last(program.threads.size(), -1);
        for (std::size_t i = 0; i < place.size(); ++i)
          place[static_cast<std::size_t>(explorer.order()[i])] = static_cast<int>(i);
        for (int item = 0; item < program.size(); ++item) {
          const auto k = static_cast<std::size_t>(item);
          int& before = last[static_cast<std::size_t>(program.items[k].thread)];
          ASSERT_LT(before, place[k]);
          before = place[k];
          for (const int other : program.before_of(item))
            ASSERT_LT(place[static_cast<std::size_t>(other)], place[k]);
        }
      }
    }
  }
}

TEST(Explore, EqualSeedsGiveEqualSchedulesAndDifferentSeedsDifferentOnes) {
  const Program program = program_of(Recorded(32, 1).log());
  Explorer one(program), other(program);
  for (const Kind policy : {Kind::random, Kind::pct}) {
    std::set<std::vector<int>> orders;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const ExploreOptions options{.policy = policy, .depth = 2, .delays = {{"a", 9}}};
      const Tags tags = one.run(options, seed);
      EXPECT_EQ(tags, other.run(options, seed));
      EXPECT_EQ(one.order(), other.order());
      orders.insert(one.order());
    }
    EXPECT_GE(orders.size(), 10u);
  }
}

// A program without hazards has one outcome; one with a hazard has another within N schedules, N
// from the bound: (1 - 1/n)^400 < 1e-12 for the n <= 15 threads that these programs have.
TEST(Explore, FindsADifferenceExactlyWhereTheCheckerFindsAHazard) {
  int hazardous = 0, clean = 0, seen_by_host = 0;
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    const Recorded recorded(seed, static_cast<std::int64_t>(seed % 5));
    const Program program = program_of(recorded.log());
    ASSERT_LE(program.threads.size(), 15u);
    const Exploration found = explore(program, pct(400));
    ASSERT_EQ(found.unstable, "");
    ASSERT_EQ(found.reordered.has_value(), recorded.is_hazardous()) << "seed " << seed;
    ASSERT_TRUE(found.reordered || !found.observed) << "seed " << seed;
    (found.reordered ? hazardous : clean) += 1;
    seen_by_host += found.observed.has_value();
    ExploreOptions random{.policy = Kind::random, .count = 40, .delays = {{"c", 30}}};
    ASSERT_TRUE(recorded.is_hazardous() || !explore(program, random).reordered) << "seed " << seed;
  }
  EXPECT_GT(hazardous, 200);
  EXPECT_GT(clean, 100);
  EXPECT_GT(seen_by_host, 50);
}

// Each wait of a program that is right, left out: redundant for the checker and for the schedules,
// or for neither.
TEST(Explore, AgreesWithTheCheckerOnEveryEdgeLeftOut) {
  int needed = 0, redundant = 0;
  for (std::uint64_t seed = 4; seed < 1200; seed += 5) {
    const Recorded recorded(seed, 4);
    if (recorded.is_hazardous()) continue;
    for (const auto& [edge, use] : recorded.edges()) {
      const bool hazard = recorded.is_hazardous({edge});
      const Exploration found = explore(program_of(recorded.log(), {edge}), pct(400));
      ASSERT_EQ(found.reordered.has_value(), hazard) << "seed " << seed;
      (hazard ? needed : redundant) += 1;
    }
  }
  EXPECT_GT(needed, 50);
  EXPECT_GT(redundant, 50);
}

// An atom is in a box with all of its bytes or with none.
TEST(Explore, AtomsAreExact) {
  std::mt19937_64 random(7);
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 200; ++round) {
    constexpr std::int64_t kBytes = 96;
    Atoms atoms(nullptr, kBytes);
    const std::int64_t unit = std::int64_t{1} << below(3);
    std::vector<Box> boxes;
    for (int i = 0; i < 6; ++i) {
      const std::int64_t rows = 1 + below(4), width = unit * (1 + below(4)),
                         pitch = width + unit * below(3);
      const std::int64_t room = kBytes - (rows - 1) * pitch - width;
      boxes.push_back(box(unit * below(room / unit + 1), rows, width, pitch));
      atoms.add(boxes.back());
    }
    const int first = 5, end = atoms.cut(first);
    std::map<std::int64_t, std::set<std::size_t>> in;  // By byte.
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      for (std::int64_t byte = 0; byte < kBytes; ++byte) {
        if (overlap(boxes[b], box(byte, 1, 1, 1))) in[byte].insert(b);
      }
    }
    std::set<std::set<std::size_t>> classes;
    for (const auto& [byte, set] : in) classes.insert(set);
    std::map<int, std::set<std::size_t>> members;
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      for (const int atom : atoms.of(boxes[b])) {
        EXPECT_TRUE(atom >= first && atom < end);
        members[atom].insert(b);
      }
    }
    std::set<std::set<std::size_t>> found;
    for (const auto& [atom, set] : members) found.insert(set);
    EXPECT_EQ(found, classes);
    EXPECT_EQ(members.size(), classes.size());
  }
}

// One stream writes what another reads, without an edge.
Program race(std::int64_t others) {
  ProgramRecorder recorder;
  Device device(open_sim({.policy = Policy::program, .trace = nullptr}), &recorder);
  const Stream fast(device, "fast"), slow(device, "slow");
  const Floats x(device, 4), y(device, 4), z(device, 4);
  slow.fill(x.data(), 1, 16);
  for (std::int64_t i = 0; i < others; ++i) fast.fill(z.data(), 1, 16);
  fast.copy(y.data(), x.data(), 16, CopyKind::device_to_device);
  slow.synchronize();
  read(fast, y);
  return std::move(recorder).finish();
}

TEST(Explore, ADelayFindsWhatTheOrderOfTheCallsDoesNot) {
  const Program program = race(30);
  ExploreOptions options{.policy = Kind::program, .count = 1, .delays = {}};
  EXPECT_FALSE(explore(program, options).observed);
  options.delays = {{"slow", 1}};  // Less than the thirty items between.
  EXPECT_FALSE(explore(program, options).observed);
  options = {.policy = Kind::program, .count = 20, .delays = {{"slow", 1000}}};
  const Exploration found = explore(program, options);
  ASSERT_TRUE(found.observed);
  EXPECT_STREQ(program.items[static_cast<std::size_t>(found.observed->item)].work.name, "copy");
}

// Three streams and a graph with two lanes add up three buffers, ordered here and there. What the
// host reads at the end.
std::vector<float> racy_sums(Device& device, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<Stream> streams;
  std::vector<Event> events;
  std::vector<Floats> buffers;
  for (int i = 0; i < 3; ++i) {
    streams.emplace_back(device, "s");
    events.emplace_back(device);
    buffers.emplace_back(device, 2);
    write(streams.back(), buffers.back(), static_cast<float>(i + 1));
    streams.back().synchronize();
  }
  const auto add = [&](const Stream& stream, std::size_t from, std::size_t to) {
    device.place.layer = static_cast<int>(3 * from + to);
    stream.submit(AccumulateGradient{.g = buffers[from].row(), .acc = buffers[to].row()});
  };
  const Event fork(device), join(device);
  streams[0].begin_capture();
  streams[0].record(fork);
  streams[1].wait(fork);
  add(streams[1], 0, 1);
  add(streams[0], 1, 2);
  streams[1].record(join);
  streams[0].wait(join);
  const Graph graph = streams[0].end_capture();
  for (int i = 0; i < 14; ++i) {
    const Stream& stream = streams[below(3)];
    const std::size_t from = below(3), what = below(8);
    if (what < 4) add(stream, from, (from + 1 + below(2)) % 3);
    if (what == 4) stream.record(events[from]);
    if (what == 5) stream.wait(events[from]);
    if (what == 6) stream.launch(graph);
    if (what == 7) stream.synchronize();
  }
  for (const Stream& stream : streams) stream.synchronize();
  std::vector<float> all;
  for (const Floats& buffer : buffers) all.push_back(read(streams[0], buffer)[0]);
  return all;
}

// A finding by tags is confirmed on just that schedule; where the tags agree, so do the bits.
TEST(Explore, TheSimulatorFollowsAScheduleExactly) {
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    ProgramRecorder recorder;
    std::vector<float> expected;
    {
      Device device(open_sim({.policy = Policy::program, .given = nullptr, .trace = nullptr}),
                    &recorder);
      expected = racy_sums(device, seed);
    }
    const Program program = std::move(recorder).finish();
    Explorer explorer(program);
    const Tags tags = explorer.run({.policy = Kind::program, .delays = {}}, 0);
    for (std::uint64_t schedule = 0; schedule < 12; ++schedule) {
      const Tags found = explorer.run({.policy = Kind::random, .delays = {}}, schedule);
      SimGiven given{turns(program, explorer.order())};
      std::vector<SimStep> trace;
      Device device(open_sim({.policy = Policy::given, .given = &given, .trace = &trace}));
      const std::vector<float> bits = racy_sums(device, seed);
      ASSERT_TRUE(given.followed) << "seed " << seed << " schedule " << schedule;
      std::vector<std::string> want, ran;
      for (const int item : explorer.order()) {
        const ProgramItem& one = program.items[static_cast<std::size_t>(item)];
        if (program.threads[static_cast<std::size_t>(one.thread)].stream >= 0)
          want.emplace_back(one.work.name);
      }
      for (const SimStep& step : trace) ran.emplace_back(step.what);
      ASSERT_EQ(ran, want);
      if (found.observed == tags.observed) {
        ASSERT_EQ(bits, expected) << "seed " << seed << " schedule " << schedule;
      }
      differ += bits != expected;
    }
  }
  EXPECT_GT(differ, 100);
}

TEST(Explore, ReportsItsBound) {
  const Program program = race(1);
  EXPECT_EQ(
      bound_text(program, pct(1000)),
      "a missing edge of depth 1 is hit with probability >= 1/3 a schedule; 1000 schedules ran");
  EXPECT_EQ(bound_text(program, {.count = 1, .delays = {}}), "1 schedule ran");
}

// The bound itself: PCT of depth 1 hits the one missing edge at least once in n schedules, on
// average.
TEST(Explore, PctKeepsItsBound) {
  const Program program = race(10);
  Explorer explorer(program);
  const Tags expected = explorer.run({.policy = Kind::program, .delays = {}}, 0);
  int hit = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) hit += explorer.run(pct(1), seed) != expected;
  EXPECT_GT(hit, 900);  // 1000 on average at least, with a standard deviation of 26.
}

TEST(LogUniform, FavoursNoPowerOfTwo) {
  std::mt19937_64 random(3);
  std::map<int, int> powers;
  for (int i = 0; i < 10000; ++i) {
    const std::int64_t turns = log_uniform(random(), 1000);
    ASSERT_TRUE(turns >= 1 && turns <= 1000);
    ++powers[std::bit_width(static_cast<std::uint64_t>(turns))];
  }
  ASSERT_EQ(powers.size(), 10u);
  for (const auto& [power, count] : powers) EXPECT_NEAR(count, 1000, 150) << power;
  EXPECT_EQ(log_uniform(12345, 1), 1);
}

}  // namespace
}  // namespace lockstep::test
