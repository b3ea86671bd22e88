// The checker finds what happens-before by definition finds, on random programs over the device
// dispatch.
#include <gtest/gtest.h>

#include "harness/checker/call_log.h"
#include "harness/checker/checker.h"
#include "tests/harness/checker/brute_force.h"
#include "tests/harness/checker/ordered_calls.h"

namespace lockstep::test {
namespace {

Label label(const Touch& touch) { return {touch.work.place.layer, touch.work.launch}; }

std::set<Label> later(const std::set<BruteForce::Race>& races) {
  std::set<Label> list;
  for (const auto& race : races) list.insert(std::get<1>(race));
  return list;
}

std::optional<BruteForce::Conflict> conflict(HazardKind kind) {
  if (kind == HazardKind::read_after_write) return BruteForce::Conflict::raw;
  if (kind == HazardKind::write_after_read) return BruteForce::Conflict::war;
  if (kind == HazardKind::write_after_write) return BruteForce::Conflict::waw;
  return std::nullopt;
}

// The checker's verdict on one program, and that of the definition.
struct Judged {
  std::set<Label> found, unwritten;  // Items with a race, and items that read what has no value.
  std::set<Label> want_found, want_unwritten;
  std::string invented;  // A pair that is ordered.
  bool agree() const {
    return invented.empty() && found == want_found && unwritten == want_unwritten;
  }
};

Judged judged(std::uint64_t seed, const std::string& mutation, int ranks = 1) {
  Checker checker({.stop = false, .mutation = mutation, .dropped = {}});
  CallLog log(checker);
  OrderedCalls(log, seed, static_cast<std::int64_t>(seed % 5), ranks)
      .run(8 + static_cast<int>(seed % 33));
  BruteForce brute;
  log.tell(brute);
  const std::set<BruteForce::Race> want = brute.races();
  Judged result;
  for (const Hazard& h : checker.hazards()) {
    if (h.kind == HazardKind::use_before_write) result.unwritten.insert(label(h.later));
    const auto kind = conflict(h.kind);
    if (!kind) continue;
    result.found.insert(label(h.later));
    if (!want.contains({label(*h.earlier), label(h.later), *kind})) result.invented = text(h);
  }
  result.want_found = later(want);
  result.want_unwritten = brute.undefined_reads();
  return result;
}

TEST(CheckerPrograms, FindsWhatTheDefinitionFinds) {
  for (const int ranks : {1, 2, 3}) {
    int racy = 0, undefined = 0, clean = 0;
    for (std::uint64_t seed = 0; seed < 1500; ++seed) {
      const Judged j = judged(seed, "", ranks);
      ASSERT_EQ(j.invented, "") << "seed " << seed << ", " << ranks << " ranks";
      ASSERT_EQ(j.found, j.want_found) << "seed " << seed << ", " << ranks << " ranks";
      ASSERT_EQ(j.unwritten, j.want_unwritten) << "seed " << seed << ", " << ranks << " ranks";
      racy += !j.found.empty(), undefined += !j.unwritten.empty(),
          clean += j.found.empty() && j.unwritten.empty();
    }
    EXPECT_GT(racy, 300);
    EXPECT_GT(undefined, 100);
    EXPECT_GT(clean, 100);
  }
}

// The waits of a host are known to it alone, until the ranks meet: a share of the races shows no
// other way.
TEST(CheckerPrograms, FindsRacesThatOneHostForAllWouldHide) {
  int hidden = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    hidden += judged(seed, "", 3).found != judged(seed, "ranks-share-one-host", 3).found;
  }
  EXPECT_GT(hidden, 100);
}

TEST(CheckerPrograms, CatchesEveryMutationOfTheChecker) {
  ASSERT_FALSE(Checker::mutations().empty());
  for (const std::string& mutation : Checker::mutations()) {
    std::uint64_t seed = 0;
    while (seed < 500 && judged(seed, mutation).agree() && judged(seed, mutation, 2).agree())
      ++seed;
    EXPECT_LT(seed, 500u) << mutation;
  }
}

}  // namespace
}  // namespace lockstep::test
