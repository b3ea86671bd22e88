// Twenty planted faults at random, each taken the whole way on the command line: a campaign from a
// fresh seed finds it, shrink makes it small within a minute, and token and file replay it bit for
// bit. LOCKSTEP_SEED fixes the draw, which is fresh and printed otherwise; LOCKSTEP_FAULTS is how
// many, LOCKSTEP_FAULT the only one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "harness/base/stopwatch.h"
#include "harness/generate/choices.h"
#include "scenarios/io/reader.h"
#include "tests/harness/mutate/planted_faults.h"
#include "tests/harness/shrink/shrink_case.h"
#include "tests/support/program.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

constexpr double kMostMedian = 60, kMostShrinking = 60;  // Seconds.
constexpr double kGiveUp = 600;                          // For one campaign.
// One in twenty of the smallest scenarios may be larger than its row says: what a fault needs at
// least depends on more than its name.
constexpr std::size_t kFaultsForOneTooLarge = 20;

// The rest of a scenario that can lose nothing more.
struct Smallest {
  std::int64_t documents = 3;
  std::size_t features = 1;
  int modules = 1;
};
Smallest smallest(const std::string& fault, const std::string& judge) {
  // The fault breaks how an evaluation treats dropout.
  if (fault == "evaluation-with-dropout") return {.features = 2};
  // A resume that forgets something shows only where dropout, or a rate that changes, is asked for
  // too.
  if (fault == "resume-repeats-dropout-keys" || fault == "resume-restarts-the-schedule")
    return {.features = 2};
  // What a stage sends while an evaluation begins, with another microbatch behind it.
  if (fault == "evaluation-overwrites-what-is-sent") return {.features = 3};
  // A stage receives inputs and gradients where it has several chunks, or others on both sides.
  if (fault == "captured-gradient-waits-for-inputs") return {.features = 3};
  // Two microbatches in a place for one that need tables of two sizes, which double: two documents,
  // and three, or five where the larger table's first part alone is too long.
  if (fault == "overflow-table-of-its-own-size" || fault == "overflow-grows-without-a-wait")
    return {.documents = 7};
  // The head is tied to a weight of another chunk: one chunk hands nothing over.
  if (fault == "head-gradient-of-a-microbatch-lost") return {.features = 2};
  // The plan of shared memory misses a count of microbatches alone, so the count must change.
  if (fault == "shared-memory-of-the-first-count") return {.features = 2};
  // Chunks that share memory, and microbatches that meet in it.
  if (fault == "chunk-gradient-reused-before-its-pass" ||
      fault == "output-reused-behind-its-pass" ||
      fault == "later-chunks-keep-memory-of-their-own" ||
      fault == "received-input-in-shared-memory" ||
      fault == "shared-memory-in-the-order-of-the-last-stage")
    return {.features = 3};
  // The fourth launch is the first backward pass of two regions, or the second of one.
  if (fault == "replay-skipped-once") return {.modules = 2};
  // A copy back is a node only if the next layer, perhaps of another kind, lies in a graph too.
  if (fault == "reload-node-ignores-the-bin") return {.modules = 2};
  // The first counter that differs may count the copies that the graphs of a later chunk hold.
  if (fault == "graphs-of-later-chunks-launched-alone") return {.features = 2};
  // A limit counts graphs of several buckets.
  if (fault == "recapture-forgets-what-it-freed") return {.features = 2};
  // A number of 8 bits ends at 256.
  if (fault == "dropout-document-in-8-bits" || fault == "slots-in-8-bits")
    return {.documents = 257};
  // Large values take long steps of the optimizer, and come sooner with a tied embedding.
  if (fault == "cross-entropy-gradient-flushes-small-terms") return {.features = 2};
  // Two steps with the larger bucket, of two documents, in another microbatch each.
  if (fault == "iteration-graph-takes-each-bucket") return {.documents = 4};
  // With one document too many in a graph no bit differs only if that document is empty.
  if (judge == "vacuous" &&
      (fault == "capacity-off-by-one" || fault == "fallback-truncates-to-capacity")) {
    return {.features = 2};
  }
  return {};
}

// The printed text of a failure, from FAIL to the line that replays it: verdict, first difference,
// bits.
std::string failure_in(const std::string& text) {
  const std::size_t begin = text.find("FAIL "), replay = text.find("\n  replay: ", begin);
  if (begin == std::string::npos || replay == std::string::npos) return "";
  return text.substr(begin, text.find('\n', replay + 1) + 1 - begin);
}

std::string token_in(const std::string& failure) {
  std::istringstream words(failure.substr(failure.rfind("lockstep replay ")));
  std::string word;
  for (int i = 0; i < 3; ++i) words >> word;
  return word;
}

std::string judge_in(const std::string& failure) {
  const std::size_t by = failure.find(" by ");
  return failure.substr(by + 4, failure.find(':', by) - by - 4);
}

bool is_of_the_resumed_run(const std::string& failure) {
  return failure.find("saved and loaded on its way") != std::string::npos;
}

std::string only_yaml_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") return entry.path().string();
  }
  return "";
}

std::vector<ListedFault> draw(std::uint64_t seed, std::size_t count) {
  std::vector<ListedFault> all = faults_that_show();
  std::erase_if(all,
                [](const ListedFault& one) { return !not_in_random_scenarios(one.name).empty(); });
  if (const char* only = std::getenv("LOCKSTEP_FAULT")) {
    std::erase_if(all, [&](const ListedFault& one) { return one.name != only; });
  }
  Choices choices(seed);
  for (std::size_t i = all.size(); i-- > 1;)
    std::swap(all[i], all[static_cast<std::size_t>(choices.draw(i + 1))]);
  all.resize(std::min(count, all.size()));
  return all;
}

// One fault on its way; a row of the table.
class Hunt {
 public:
  Hunt(ListedFault fault, std::uint64_t seed) : fault_(std::move(fault)), seed_(seed) {}

  void run() {
    SCOPED_TRACE(fault_.name + ", seed " + std::to_string(seed_));
    find();
    if (found_.empty()) return;
    shrink();
    if (!small_.empty()) judge_size();
    std::printf("| %s | %llu | %.1f | %lld | %s | %.1f | %lld | %d | %s | %d of 4 |\n",
                fault_.name.c_str(), static_cast<unsigned long long>(seed_), seconds_,
                static_cast<long long>(scenarios_), judge_in(found_).c_str(), shrink_seconds_,
                static_cast<long long>(documents_), modules_,
                features_.empty() ? "none" : features_.c_str(), replayed_);
    std::fflush(stdout);
  }
  double seconds() const { return seconds_; }
  // The smallest scenario if it is larger than the fault needs; else empty.
  const std::string& too_large() const { return too_large_; }
  // What the failure of the smallest scenario says, for a reader who asks whether it names the op.
  const std::string& report() const { return smallest_; }

 private:
  std::string planted() const {
    return " --device sim --quiet " + fault_.option + " " + fault_.name + " ";
  }

  void find() {
    std::ostringstream words;
    const std::string with = needs_outside(fault_.name);
    words << "fuzz" << planted() << (with.empty() ? "" : "--with " + with + " ")
          << "--jobs 1 --seed " << seed_ << " --stop-after 1 --budget " << kGiveUp << " --corpus "
          << folder_ / "corpus"
          << " --log " << folder_ / "log";
    const Stopwatch watch;
    const Ran ran = run_lockstep(words.str());
    seconds_ = watch.seconds();
    std::istringstream lines(slurp(folder_ / "log"));
    for (std::string line; std::getline(lines, line);) ++scenarios_;
    --scenarios_;  // The header.
    found_ = failure_in(ran.out);
    EXPECT_NE(found_, "") << "not found by " << scenarios_ << " scenarios in " << seconds_
                          << " s: " << ran.out << ran.err;
    if (found_.empty()) return;
    file_ = only_yaml_in(folder_ / "corpus");
    expect_replays(file_, found_);
    expect_replays(token_in(found_), found_);
    const Ran mended = run_lockstep("replay --device sim --quiet " + file_);
    EXPECT_EQ(mended.status, 0) << "fails without the fault too: " << mended.out << mended.err;
  }

  void shrink() {
    const std::string file = folder_ / "small.yaml";
    const Stopwatch watch;
    const Ran ran = run_lockstep("shrink" + planted() + file_ + " -o " + file);
    shrink_seconds_ = watch.seconds();
    EXPECT_EQ(ran.status, 0) << "the smallest was not reached: " << ran.out << ran.err;
    EXPECT_LE(shrink_seconds_, kMostShrinking);
    smallest_ = failure_in(ran.out);
    if (smallest_.empty()) return;
    small_ = file;
    // Which result of a resumed run differs first is a matter of sizes.
    const bool resumed = is_of_the_resumed_run(smallest_) && is_of_the_resumed_run(found_);
    EXPECT_TRUE(resumed || judge_in(smallest_) == judge_in(found_)) << found_ << smallest_;
    expect_replays(small_, smallest_);
    expect_replays(token_in(smallest_), smallest_);
    const Ran mended = run_lockstep("verify --device sim --quiet " + small_);
    EXPECT_EQ(mended.status, 0) << "fails without the fault too: " << mended.out << mended.err;
  }

  void judge_size() {
    const ReadResult read = read_scenario_file(small_);
    ASSERT_TRUE(read.ok()) << read.errors.front().text();
    documents_ = documents_in(read.scenario);
    modules_ = graph_modules_in(read.scenario);
    const std::vector<std::string> features = further_features_in(read.scenario);
    for (const std::string& one : features) features_ += (features_.empty() ? "" : ", ") + one;
    const Smallest most = smallest(fault_.name, judge_in(found_));
    if (documents_ > most.documents || modules_ > most.modules || features.size() > most.features)
      too_large_ = slurp(small_);
  }

  void expect_replays(const std::string& token_or_file, const std::string& failure) {
    const Ran ran = run_lockstep("replay" + planted() + token_or_file);
    EXPECT_EQ(failure_in(ran.out), failure);
    replayed_ += failure_in(ran.out) == failure;
  }

  const ListedFault fault_;
  const std::uint64_t seed_;
  const TemporaryFolder folder_;
  std::string found_, file_, small_, smallest_, features_, too_large_;
  double seconds_ = 0, shrink_seconds_ = 0;
  std::int64_t scenarios_ = 0, documents_ = 0;
  int modules_ = 0, replayed_ = 0;
};

TEST(CampaignFaults, AreFoundShrunkAndReplayed) {
  const std::uint64_t seed = test_seed();
  const char* asked = std::getenv("LOCKSTEP_FAULTS");
  const std::vector<ListedFault> faults =
      draw(seed, asked ? static_cast<std::size_t>(std::atoi(asked)) : 20);
  std::printf("%zu of %zu faults; not drawn:\n", faults.size(), faults_that_show().size());
  for (const ListedFault& one : faults_that_show()) {
    const std::string why = not_in_random_scenarios(one.name);
    if (!why.empty()) std::printf("  %s: %s\n", one.name.c_str(), why.c_str());
  }
  for (const auto& [name, fault] : equivalent_faults())
    std::printf("  %s: %s\n", name.c_str(), fault.why.c_str());
  std::printf("drawn:");
  for (const ListedFault& one : faults) std::printf(" %s", one.name.c_str());
  std::printf("\n");
  std::puts(
      "| fault | seed | s to find | scenarios | judge | s to shrink | documents | modules | "
      "feature | replays |");
  std::puts("|---|---|---|---|---|---|---|---|---|---|");
  std::vector<double> seconds;
  std::string reports, all_too_large;
  std::size_t too_large = 0;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Hunt hunt(faults[i], (seed >> 1) + i);
    hunt.run();
    seconds.push_back(hunt.seconds());
    reports += "\n" + faults[i].name + "\n" + hunt.report();
    if (hunt.too_large().empty()) continue;
    ++too_large;
    all_too_large += "\n" + faults[i].name + "\n" + hunt.too_large();
  }
  std::printf("\nreports of the smallest scenarios:\n%s\n", reports.c_str());
  ASSERT_FALSE(seconds.empty());
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::printf("median %.1f s to find, most %.1f s\n", median, seconds.back());
  EXPECT_LT(median, kMostMedian);
  if (too_large > 0)
    std::printf("\n%zu too large for what the fault needs:\n%s", too_large, all_too_large.c_str());
  EXPECT_LE(too_large, faults.size() / kFaultsForOneTooLarge) << all_too_large;
}

}  // namespace
}  // namespace lockstep
