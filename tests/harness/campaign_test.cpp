// `lockstep fuzz` as scripts see it: equal seeds, kills, crashes, hangs, full disks, shards, two at once. Most runs are
// of the profile near-legal, which never touches a device and so makes hundreds of cases a second.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "tests/harness/program.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A log's lines by case; a case that is there twice is a failure.
std::map<std::int64_t, json::object> cases_of(const std::string& log) {
  std::map<std::int64_t, json::object> cases;
  std::istringstream lines(slurp(log));
  std::string line;
  EXPECT_TRUE(std::getline(lines, line) && json::parse(line).as_object().contains("campaign"));
  while (std::getline(lines, line)) {
    json::object one = json::parse(line).as_object();
    if (one.at("case").is_null()) continue;
    one.erase("seconds");
    const std::int64_t index = one.at("case").to_number<std::int64_t>();
    EXPECT_TRUE(cases.emplace(index, std::move(one)).second) << "case " << index << " is there twice";
  }
  return cases;
}

std::set<std::int64_t> numbers_of(const std::string& log) {
  std::set<std::int64_t> numbers;
  for (const auto& [index, one] : cases_of(log)) numbers.insert(index);
  return numbers;
}

std::set<std::int64_t> first(std::int64_t count) {
  std::set<std::int64_t> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.insert(i);
  return numbers;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// No seed decides when a kill comes.
int any_moment(int least, int most) {
  unsigned word = 0;
  EXPECT_EQ(::getrandom(&word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
  return least + static_cast<int>(word % static_cast<unsigned>(most - least));
}

// Locks a file as another campaign does.
class Locked {
 public:
  explicit Locked(const std::string& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT, 0666)) {
    EXPECT_EQ(::flock(descriptor_, LOCK_EX | LOCK_NB), 0);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { ::close(descriptor_); }

 private:
  int descriptor_;
};

class Campaign : public testing::Test {
 protected:
  static Ran fuzz(const std::string& words) { return run_lockstep("fuzz --device sim " + words); }
  static Ran near(const std::string& words) { return fuzz("--profile near-legal --jobs 1 " + words); }
  // Starts it and kills it, and nothing else, after a while. False if it had ended before.
  static bool start_and_kill(const std::vector<std::string>& words, int milliseconds) {
    const std::string program = lockstep_program();
    std::vector<const char*> arguments{program.c_str()};
    for (const std::string& word : words) arguments.push_back(word.c_str());
    arguments.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      ::execv(program.c_str(), const_cast<char**>(arguments.data()));
      ::_exit(127);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status);
  }
  TemporaryFolder folder_;
};

TEST_F(Campaign, EqualSeedsGiveEqualCasesAndVerdictsOnAnyNumberOfWorkers) {
  const std::string one = folder_ / "one", two = folder_ / "two";
  const int status = fuzz("--seed 11 --count 24 --jobs 1 --log " + one).status;
  EXPECT_EQ(fuzz("--seed 11 --count 24 --jobs 3 --log " + two).status, status);
  EXPECT_EQ(cases_of(one), cases_of(two));
  EXPECT_EQ(numbers_of(one), first(24));
  EXPECT_EQ(near("--seed 12 --count 24 --log " + (folder_ / "other")).status, 0);
  EXPECT_NE(cases_of(one), cases_of(folder_ / "other"));
}

TEST_F(Campaign, AKilledCampaignLosesNothingAndRepeatsNothing) {
  const char* asked = std::getenv("LOCKSTEP_KILLS");
  const int kills = asked ? std::atoi(asked) : 3;
  const int count = 400 + 100 * kills;
  const std::string log = folder_ / "log", whole = folder_ / "whole";
  const std::vector<std::string> words{
      "fuzz",   "--device", "sim",   "--seed", "5",        "--count",   std::to_string(count),
      "--jobs", "2",        "--log", log,      "--resume", "--profile", "near-legal"};
  int killed = 0;
  std::size_t most = 0;
  for (int i = 0; i < kills; ++i) {
    killed += start_and_kill(words, any_moment(5, 60));
    if (std::filesystem::exists(log) && std::filesystem::file_size(log) > 0) {
      std::istringstream lines(slurp(log));
      std::size_t there = 0;
      for (std::string line; std::getline(lines, line);) ++there;
      EXPECT_GE(there + 1, most) << "a case was lost";
      most = std::max(most, there);
    }
  }
  EXPECT_GE(killed, 1);
  EXPECT_EQ(near("--seed 5 --count " + std::to_string(count) + " --resume --log " + log).status, 0);
  EXPECT_EQ(near("--seed 5 --count " + std::to_string(count) + " --log " + whole).status, 0);
  EXPECT_EQ(numbers_of(log), first(count));
  EXPECT_EQ(cases_of(log), cases_of(whole));
}

TEST_F(Campaign, ATornLastLineIsRunAgain) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(near("--seed 3 --count 20 --log " + log).status, 0);
  const auto whole = cases_of(log);
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 7);
  ASSERT_EQ(near("--count 20 --resume --log " + log).status, 0);  // The seed is the log's.
  EXPECT_EQ(cases_of(log), whole);
}

TEST_F(Campaign, ALogIsContinuedOnlyByTheSameCampaign) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(near("--seed 3 --count 5 --log " + log).status, 0);
  const std::string before = slurp(log);
  const Ran again = near("--seed 3 --count 5 --log " + log);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("--resume continues it"));
  const Ran other = near("--seed 4 --count 5 --resume --log " + log);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("begun with seed \"3\", this request has \"4\""));
  EXPECT_EQ(near("--seed 3 --shard 1/2 --resume --log " + log).status, 2);
  EXPECT_EQ(slurp(log), before);
  const Ran stranger = near("--seed 3 --resume --log " + folder_.file("text", "dear diary\n"));
  EXPECT_EQ(stranger.status, 2);
  EXPECT_THAT(stranger.err, HasSubstr("no line of a campaign's log"));
  EXPECT_EQ(near("--resume").status, 2);
}

TEST_F(Campaign, ShardsCoverEveryCaseExactlyOnce) {
  std::map<std::int64_t, json::object> all;
  std::size_t lines = 0;
  for (const char* shard : {"0/3", "1/3", "2/3"}) {
    const std::string log = folder_ / ("log" + std::string(shard, 1));
    ASSERT_EQ(near("--seed 7 --count 50 --log " + log + " --shard " + shard).status, 0);
    const auto part = cases_of(log);
    lines += part.size();
    all.insert(part.begin(), part.end());
  }
  ASSERT_EQ(near("--seed 7 --count 50 --log " + (folder_ / "whole")).status, 0);
  EXPECT_EQ(lines, 50u);
  EXPECT_EQ(all, cases_of(folder_ / "whole"));
  for (const char* wrong : {"3/3", "1", "a/b", "-1/2", "1/0"}) {
    EXPECT_EQ(near(std::string("--count 1 --shard ") + wrong).status, 2) << wrong;
  }
}

TEST_F(Campaign, APlantedFaultIsFoundAndKeptOnceAClass) {
  const std::string corpus = folder_ / "corpus",
                    words = "--seed 21 --count 12 --reruns 1 --plant linear-weight-gradient-drops-first-row --corpus " +
                            corpus;
  const Ran found = fuzz(words + " --jobs 2 --json " + (folder_ / "r.json"));
  EXPECT_EQ(found.status, 1) << found.out << found.err;
  const json::value report = json::parse(slurp(folder_ / "r.json"));
  std::set<std::string> files;
  std::size_t failures = 0;
  for (const json::value& one : report.at("classes").as_array()) {
    files.insert(corpus + "/" + json::value_to<std::string>(one.at("file")));
    EXPECT_EQ(one.at("kind").as_string(), "deterministic");
    failures += one.at("cases").to_number<std::size_t>();
  }
  EXPECT_GT(failures, files.size()) << "several cases are of one class";
  const std::vector<std::string> kept = files_in(corpus);
  EXPECT_EQ(std::set<std::string>(kept.begin(), kept.end()), files);
  ASSERT_FALSE(kept.empty());

  // The kept file fails in the same way, and holds where the fault is not.
  const Ran verify = run_lockstep("verify --device sim --plant linear-weight-gradient-drops-first-row " + kept.front());
  EXPECT_EQ(verify.status, 1) << verify.out << verify.err;
  EXPECT_EQ(run_lockstep("verify --device sim " + kept.front()).status, 0);

  // The same campaign again replays the file first, finds the same, and keeps nothing new.
  const Ran again = fuzz(words + " --jobs 1 --log " + (folder_ / "log"));  // One worker, so that the log is in order.
  EXPECT_EQ(again.status, 1);
  EXPECT_EQ(files_in(corpus), kept);
  std::istringstream lines(slurp(folder_ / "log"));
  std::string line;
  std::getline(lines, line);
  std::set<std::string> replayed;
  for (std::size_t i = 0; i < kept.size() && std::getline(lines, line); ++i) {
    const json::value first_lines = json::parse(line);
    ASSERT_TRUE(first_lines.as_object().contains("corpus")) << "the corpus comes first";
    replayed.insert(corpus + "/" + json::value_to<std::string>(first_lines.at("corpus")));
  }
  EXPECT_EQ(replayed, files);
}

TEST_F(Campaign, ACrashingWorkerIsAVerdictAndNotTheEnd) {
  const std::string log = folder_ / "log";
  const Ran ran = fuzz("--seed 1 --count 6 --jobs 2 --plant harness-test-crash --plant-case 3 --reruns 5 --log " + log +
                       " --corpus " + (folder_ / "corpus"));
  EXPECT_EQ(ran.status, 3) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("killed by SIGSEGV"));
  EXPECT_THAT(ran.out, HasSubstr("deterministic: 5 of 5 further runs failed"));
  const auto cases = cases_of(log);
  EXPECT_EQ(numbers_of(log), first(6));
  for (const auto& [index, one] : cases) {
    EXPECT_EQ(one.at("judge") == "crash", index == 3) << index;
  }
  EXPECT_EQ(files_in(folder_ / "corpus").size(), 1u);
}

TEST_F(Campaign, AHungWorkerIsKilledAndSaysWhereItWaits) {
  const std::string log = folder_ / "log";
  const Ran ran =
      fuzz("--seed 1 --count 4 --jobs 2 --plant harness-test-hang --plant-case 2 --timeout 3 --reruns 1 --log " + log);
  EXPECT_EQ(ran.status, 4) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("no result within 3 s: running, in pause < lockstep::CampaignJobs::run"));
  EXPECT_EQ(numbers_of(log), first(4));
  EXPECT_EQ(cases_of(log).at(2).at("judge"), "watchdog");
}

TEST_F(Campaign, AWorkerOutOfMemoryIsInfrastructure) {
  const std::string log = folder_ / "log";
  const Ran ran = fuzz("--seed 1 --count 3 --jobs 1 --memory-limit 1 --reruns 1 --log " + log);
  EXPECT_EQ(ran.status, 3) << ran.out;
  for (const auto& [index, one] : cases_of(log)) {
    EXPECT_EQ(one.at("judge"), "memory") << json::serialize(one);
    EXPECT_EQ(one.at("failure").at("kind"), "infrastructure");
  }
}

TEST_F(Campaign, AFullDiskEndsItAndLosesNothing) {
  if (std::filesystem::is_character_file("/dev/full")) {  // Some containers have none.
    const Ran full = near("--seed 2 --count 20 --log /dev/full");
    EXPECT_EQ(full.status, 3);
    EXPECT_THAT(full.err, HasSubstr("/dev/full: cannot write: No space left on device"));
  }

  // A disk that fills up on the way: files may have 8 KiB.
  const std::string log = folder_ / "log";
  const std::string words = " fuzz --device sim --profile near-legal --seed 2 --count 60 --jobs 1 --log " + log;
  const int code = std::system(
      ("bash -c 'ulimit -f 8; exec " + lockstep_program() + words + "' >/dev/null 2>" + (folder_ / "err")).c_str());
  EXPECT_EQ(WEXITSTATUS(code), 3);
  EXPECT_THAT(slurp(folder_ / "err"), HasSubstr("cases are in it, --resume goes on from there"));
  const std::size_t there = cases_of(log).size();
  EXPECT_GT(there, 5u);
  EXPECT_LT(there, 60u);
  EXPECT_EQ(near("--seed 2 --count 60 --resume --log " + log).status, 0);
  EXPECT_EQ(numbers_of(log), first(60));
}

TEST_F(Campaign, AFolderThatCannotBeWrittenIsAFailureOfTheWorld) {
  for (const char* words : {"--log /proc/none/log", "--corpus /proc/none", "--corpus /dev/null/x"}) {
    const Ran ran = near(std::string("--seed 1 --count 1 ") + words);
    EXPECT_EQ(ran.status, 3) << words;
    EXPECT_THAT(ran.err, HasSubstr(words + std::string(words).find('/'))) << words;
  }
}

TEST_F(Campaign, TwoAtOnceOnOneLogOrCorpusAreRefused) {
  const std::string log = folder_ / "log", corpus = folder_ / "corpus";
  std::filesystem::create_directory(corpus);
  const Locked log_lock(log), corpus_lock(corpus + "/.lock");
  for (const std::string& words : {"--log " + log, "--resume --log " + log, "--corpus " + corpus}) {
    const Ran ran = near("--seed 1 --count 1 " + words);
    EXPECT_EQ(ran.status, 2) << words;
    EXPECT_THAT(ran.err, HasSubstr("another campaign uses this")) << words;
  }
}

TEST_F(Campaign, ABrokenCorpusIsABadRequestAndAnExpectedRefusalHolds) {
  const std::string corpus = folder_ / "corpus";
  std::filesystem::create_directory(corpus);
  folder_.file("corpus/a.yaml",
               "schema: 1\nname: a\nnumerics: [fp32]\nmodel: {pattern: \"*E\"}\ncuda_graph: {modules: [moe, "
               "moe_router]}\nexpect: {verdict: refused, error: L17}\n");
  EXPECT_EQ(near("--seed 1 --count 1 --corpus " + corpus).status, 0);
  folder_.file("corpus/b.yaml", "schema: 1\nnmae: b\n");
  const Ran ran = near("--seed 1 --count 1 --corpus " + corpus);
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("[Y03]"));
}

TEST_F(Campaign, ABudgetThatEndsBeforeTheCountGivesUp) {
  const Ran ran = near("--seed 1 --count 100000000 --budget 0.5");
  EXPECT_EQ(ran.status, 5) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("the budget ended first"));
  EXPECT_EQ(near("--seed 1 --budget 0.5").status, 0);
}

TEST_F(Campaign, AFreshSeedIsPrintedAndMayComeFromTheEnvironment) {
  const Ran one = near("--count 1"), two = near("--count 1");
  EXPECT_THAT(one.err, HasSubstr("lockstep fuzz: seed "));
  EXPECT_NE(one.err, two.err);
  ::setenv("LOCKSTEP_SEED", "77", 1);
  EXPECT_THAT(near("--count 1").err, HasSubstr("seed 77,"));
  ::unsetenv("LOCKSTEP_SEED");
  EXPECT_EQ(near("--count 1 --seed x").status, 2);
  EXPECT_EQ(near("--count 1 --profile smal").status, 2);
}

TEST_F(Campaign, TheReportCountsFeaturesPairsAndBoundaries) {
  const Ran ran =
      fuzz("--seed 9 --count 6 --jobs 2 --json " + (folder_ / "r.json") + " --junit " + (folder_ / "r.xml"));
  EXPECT_THAT(ran.out, HasSubstr("pairs that met: "));
  EXPECT_THAT(ran.out, HasSubstr("never met: "));
  const json::value report = json::parse(slurp(folder_ / "r.json"));
  EXPECT_EQ(report.at("summary").at("scenarios").to_number<int>(), 6);
  const json::value& drawn = report.at("distribution");
  EXPECT_TRUE(drawn.at("features").as_object().contains("mamba"));
  EXPECT_TRUE(drawn.at("boundaries").as_object().contains("capacity + 1"));
  EXPECT_EQ(drawn.at("pairs_met").to_number<std::size_t>() + drawn.at("never_met").as_array().size(),
            drawn.at("pairs_that_can_meet").to_number<std::size_t>());
  EXPECT_THAT(slurp(folder_ / "r.xml"), HasSubstr("<testsuite"));
}

}  // namespace
}  // namespace lockstep
