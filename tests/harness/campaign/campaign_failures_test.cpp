// Campaigns and the worst: kill -9 of the campaign, of a worker, of a shrink; crashes, hangs,
// memory, full disks, folders that cannot be written, two at once. LOCKSTEP_KILLS is how many
// moments of kill -9 are tried.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <csignal>

#include "scenarios/io/reader.h"
#include "tests/harness/campaign/campaign_run.h"
#include "tests/support/patience.h"
#include "tests/support/started.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::IsEmpty;

// No seed decides when a kill comes.
int any_moment(int least, int most) {
  unsigned word = 0;
  EXPECT_EQ(::getrandom(&word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
  return least + static_cast<int>(word % static_cast<unsigned>(most - least));
}

// Locks a file as another campaign does.
class Locked {
 public:
  explicit Locked(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT, 0666)) {
    EXPECT_EQ(::flock(descriptor_, LOCK_EX | LOCK_NB), 0);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { ::close(descriptor_); }

 private:
  int descriptor_;
};

int kills_asked() {
  const char* asked = std::getenv("LOCKSTEP_KILLS");
  return asked ? std::atoi(asked) : 3;
}

std::vector<std::string> temporaries_in(const std::string& folder) {
  std::vector<std::string> list;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().string().find(".tmp.") != std::string::npos)
      list.push_back(entry.path().string());
  }
  return list;
}

// The number of a process that has ended.
pid_t a_dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// A campaign that finds something soon.
constexpr const char* kFinds =
    "fuzz --device sim --quiet --jobs 1 --seed 21 --count 50 --stop-after 1 --reruns 0 --plant "
    "rms-norm-forgets-eps";

TEST_F(Campaign, AKilledCampaignLosesNothingAndRepeatsNothing) {
  const int kills = kills_asked();
  const int count = 400 + 100 * kills;
  const std::string log = folder_ / "log", whole = folder_ / "whole";
  const std::string line =
      "fuzz --device sim --profile near-legal --jobs 2 --resume --seed 5 --count " +
      std::to_string(count) + " --log " + log;
  int killed = 0;
  std::size_t most = 0;
  for (int i = 0; i < kills; ++i) {
    Started campaign(line);
    pause_ms(any_moment(5, 60));
    killed += campaign.kill_now();
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

TEST_F(Campaign, ACrashingWorkerIsAVerdictAndNotTheEnd) {
  const std::string log = folder_ / "log";
  const Ran ran = fuzz(
      "--seed 1 --count 6 --jobs 2 --plant harness-test-crash --plant-case 3 --reruns 5 --log " +
      log + " --corpus " + (folder_ / "corpus"));
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
  const std::string seconds = std::to_string(3 * patience());
  const Ran ran = fuzz(
      "--seed 1 --count 4 --jobs 2 --plant harness-test-hang --plant-case 2 --reruns 1 --timeout " +
      seconds + " --log " + log);
  EXPECT_EQ(ran.status, 4) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("no result within " + seconds +
                                 " s: running, in pause < lockstep::CampaignJobs::run"));
  EXPECT_EQ(numbers_of(log), first(4));
  EXPECT_EQ(cases_of(log).at(2).at("judge"), "watchdog");
}

// The sanitizers' own address space is above any limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Campaign, AWorkerOutOfMemoryIsInfrastructure) {
  const std::string log = folder_ / "log";
  const Ran ran = fuzz("--seed 1 --count 3 --jobs 1 --memory-limit 1 --reruns 1 --log " + log);
  EXPECT_EQ(ran.status, 3) << ran.out;
  for (const auto& [index, one] : cases_of(log)) {
    EXPECT_EQ(one.at("judge"), "memory") << json::serialize(one);
    EXPECT_EQ(one.at("failure").at("kind"), "infrastructure");
  }
}
#endif

TEST_F(Campaign, AFullDiskEndsItAndLosesNothing) {
  if (std::filesystem::is_character_file("/dev/full")) {  // Some containers have none.
    const Ran full = near("--seed 2 --count 20 --log /dev/full");
    EXPECT_EQ(full.status, 3);
    EXPECT_THAT(full.err, HasSubstr("/dev/full: cannot write: No space left on device"));
  }

  // A disk that fills up on the way: files may have 8 KiB.
  const std::string log = folder_ / "log";
  Started campaign(
      "fuzz --device sim --profile near-legal --seed 2 --count 60 --jobs 1 --log " + log, 8192,
      folder_ / "err");
  EXPECT_EQ(campaign.exit_status(), 3);
  EXPECT_THAT(slurp(folder_ / "err"), HasSubstr("cases are in it, --resume goes on from there"));
  const std::size_t there = cases_of(log).size();
  EXPECT_GT(there, 5u);
  EXPECT_LT(there, 60u);
  EXPECT_EQ(near("--seed 2 --count 60 --resume --log " + log).status, 0);
  EXPECT_EQ(numbers_of(log), first(60));
}

TEST_F(Campaign, AFolderThatCannotBeWrittenIsAFailureOfTheWorld) {
  for (const char* words :
       {"--log /proc/none/log", "--corpus /proc/none", "--corpus /dev/null/x"}) {
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

TEST_F(Campaign, ATornLastLineIsRunAgain) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(near("--seed 3 --count 20 --log " + log).status, 0);
  const auto whole = cases_of(log);
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 7);
  ASSERT_EQ(near("--count 20 --resume --log " + log).status, 0);  // The seed is the log's.
  EXPECT_EQ(cases_of(log), whole);
}

TEST_F(Campaign, ResumedAfterItsEndItRunsNothing) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(near("--seed 3 --count 20 --log " + log).status, 0);
  const std::string whole = slurp(log);
  for (int i = 0; i < 2; ++i) {
    const Ran again = near("--seed 3 --count 20 --resume --log " + log);
    EXPECT_EQ(again.status, 0);
    EXPECT_THAT(again.out, HasSubstr("20 cases"));
    EXPECT_THAT(again.out, HasSubstr("; 0 run in"));
    EXPECT_EQ(slurp(log), whole);
  }
}

TEST_F(Campaign, KilledWhileItsWorkerHangsItLeavesNoProcess) {
  Started campaign(
      "fuzz --device sim --jobs 2 --seed 1 --count 4 --plant harness-test-hang --log " +
      (folder_ / "log"));
  std::vector<pid_t> workers;
  ASSERT_TRUE(comes_true([&] { return (workers = children_of(campaign.pid())).size() == 2; }));
  EXPECT_TRUE(comes_true([&] { return !slurp(folder_ / "log.state/worker-0.yaml").empty(); }));
  EXPECT_TRUE(campaign.kill_now());
  for (const pid_t worker : workers)
    EXPECT_TRUE(comes_true([&] { return !lives(worker); })) << worker;
  EXPECT_TRUE(read_scenario_file(folder_ / "log.state/worker-0.yaml").ok())
      << "the case that it ran is on the disk";
  EXPECT_EQ(
      fuzz("--jobs 1 --count 1 --resume --timeout 0.5 --reruns 0 --plant harness-test-hang --log " +
           (folder_ / "log"))
          .status,
      4);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log.state"));
}

TEST_F(Campaign, AWorkerThatSomebodyKillsIsInfrastructure) {
  const std::string log = folder_ / "log";
  Started campaign(
      "fuzz --device sim --jobs 1 --seed 1 --count 2 --reruns 0 --plant harness-test-hang "
      "--plant-case 1 " +
      std::string("--log ") + log);
  ASSERT_TRUE(comes_true([&] {
    return std::filesystem::exists(log) && slurp(log).find("\n{\"case\":0") != std::string::npos;
  }));
  const std::vector<pid_t> workers = children_of(campaign.pid());
  ASSERT_EQ(workers.size(), 1u);
  ::kill(workers.front(), SIGKILL);
  EXPECT_EQ(campaign.exit_status(), 3);
  EXPECT_EQ(numbers_of(log), first(2));
  EXPECT_EQ(cases_of(log).at(1).at("judge"), "memory")
      << "the kernel kills in this way when memory is short";
  EXPECT_EQ(cases_of(log).at(1).at("failure").at("kind"), "infrastructure");
}

// Runners end a whole process group: the campaign finishes what runs and begins nothing.
TEST_F(Campaign, EndedWithItsWorkersItCallsNothingAFailure) {
  const std::string log = folder_ / "log";
  Started campaign("fuzz --device sim --jobs 2 --seed 1 --count 100000 --log " + log);
  ASSERT_TRUE(comes_true([&] { return slurp(log).find("\n{\"case\":") != std::string::npos; }));
  for (const pid_t worker : children_of(campaign.pid())) ::kill(worker, SIGTERM);
  ::kill(campaign.pid(), SIGTERM);
  EXPECT_EQ(campaign.exit_status(), 5);
  for (const auto& [index, one] : cases_of(log)) EXPECT_EQ(one.at("verdict"), "holds") << index;
}

// As verify skips it in a folder: another machine's case is no failure of this one.
TEST_F(Campaign, ACorpusMayHaveCasesForOtherMachines) {
  std::filesystem::create_directory(folder_ / "corpus");
  folder_.file(
      "corpus/nccl.yaml",
      "schema: 1\nname: nccl\nfsdp: {strategy: optim}\nparallel: {data: 64, transport: nccl}\n");
  const Ran ran =
      run_lockstep("fuzz --device sim --count 1 --seed 1 --corpus " + (folder_ / "corpus"));
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("1 skipped"));
}

// Who sends a second signal does not wait for a case that takes hours; the reports are whole.
TEST_F(Campaign, AtASecondSignalItEndsAtOnce) {
  std::filesystem::create_directory(folder_ / "corpus");
  folder_.file(
      "corpus/slow.yaml",
      "schema: 1\nname: slow\ntraining: {steps: 100}\nchecker: {schedule: {count: 1000000}}\n");
  const std::string log = folder_ / "log", report = folder_ / "report.json";
  Started campaign("fuzz --device sim --jobs 1 --count 3 --seed 1 --timeout 3600 --corpus " +
                   (folder_ / "corpus") + " --log " + log + " --json " + report);
  ASSERT_TRUE(comes_true([&] { return !children_of(campaign.pid()).empty(); }));
  ::kill(campaign.pid(), SIGTERM);
  ::kill(campaign.pid(), SIGINT);  // As a launcher does.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_FALSE(std::filesystem::exists(report)) << "what runs has some time";
  ::kill(campaign.pid(), SIGTERM);
  EXPECT_EQ(campaign.exit_status(), 5);
  EXPECT_THAT(slurp(report), HasSubstr("\"ended_early\":true"));
  EXPECT_THAT(cases_of(log), IsEmpty());
}

TEST_F(Campaign, ADiskThatIsFullWhenTheCorpusIsWrittenLosesNothing) {
  // Which case fails, and how large a file the corpus gets for it.
  ASSERT_EQ(run_lockstep(kFinds + std::string(" --corpus ") + (folder_ / "first") + " --log " +
                         (folder_ / "l"))
                .status,
            1);
  ASSERT_EQ(files_in(folder_ / "first").size(), 1u);
  const std::string kept = files_in(folder_ / "first").front();
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(kept));
  const std::int64_t failing = *numbers_of(folder_ / "l").rbegin();

  const std::string corpus = folder_ / "corpus", log = folder_ / "log";
  const std::string line = kFinds + std::string(" --case ") + std::to_string(failing) +
                           " --corpus " + corpus + " --log " + log;
  Started campaign(line, size - 1, folder_ / "err");
  EXPECT_EQ(campaign.exit_status(), 3);
  EXPECT_THAT(slurp(folder_ / "err"), HasSubstr(".yaml: cannot write: File too large"));
  EXPECT_THAT(files_in(corpus), IsEmpty());
  EXPECT_THAT(temporaries_in(corpus), IsEmpty());
  EXPECT_THAT(cases_of(log), IsEmpty()) << "a failure that is not kept is not done";

  EXPECT_EQ(run_lockstep(line + " --resume").status, 1);
  ASSERT_EQ(files_in(corpus).size(), 1u);
  EXPECT_EQ(slurp(files_in(corpus).front()), slurp(kept));
  EXPECT_EQ(numbers_of(log), std::set<std::int64_t>{failing});
}

TEST_F(Campaign, KilledWhereverItWritesItKeepsWholeFilesOnly) {
  const std::string corpus = folder_ / "corpus";
  for (int i = 0; i < kills_asked(); ++i) {
    std::filesystem::remove_all(corpus);
    Started campaign(kFinds + std::string(" --corpus ") + corpus);
    pause_ms(any_moment(5, 120));
    campaign.kill_now();
    if (!std::filesystem::exists(corpus)) continue;
    for (const std::string& file : files_in(corpus))
      EXPECT_TRUE(read_scenario_file(file).ok()) << slurp(file);
  }
}

TEST_F(Campaign, ANewOneRemovesWhatDeadOnesLeftHalfWritten) {
  const std::string corpus = folder_ / "corpus";
  std::filesystem::create_directories(corpus + "/refused");
  const std::string dead = ".yaml.tmp." + std::to_string(a_dead_process()) + ".0123456789abcdef";
  const std::string torn = folder_.file("corpus/a" + dead, "schema: 1\nna");
  const std::string torn_too = folder_.file("corpus/refused/b" + dead, "schem");
  const std::string of_a_living_one = folder_.file("corpus/c" + dead, "s");
  const std::string of_others = folder_.file("corpus/notes.tmp.1", "mine");
  const int held = ::open(of_a_living_one.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_EQ(near("--seed 1 --count 1 --corpus " + corpus).status, 0);
  EXPECT_FALSE(std::filesystem::exists(torn));
  EXPECT_FALSE(std::filesystem::exists(torn_too));
  EXPECT_TRUE(std::filesystem::exists(of_a_living_one));
  EXPECT_TRUE(std::filesystem::exists(of_others));
  ::close(held);
}

TEST_F(Campaign, ASecondOneOnTheSameCorpusIsRefusedAndTheFirstGoesOn) {
  const std::string corpus = folder_ / "corpus", log = folder_ / "log";
  Started campaign(
      "fuzz --device sim --profile near-legal --jobs 1 --seed 6 --count 300 --corpus " + corpus +
      " --log " + log);
  ASSERT_TRUE(comes_true(
      [&] { return std::filesystem::exists(log) && std::filesystem::file_size(log) > 0; }));
  const Ran second = near("--seed 7 --count 1 --corpus " + corpus);
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.err, HasSubstr(corpus + "/.lock: another campaign uses this corpus"));
  EXPECT_EQ(campaign.exit_status(), 0);
  EXPECT_EQ(numbers_of(log), first(300));
}

// The worker of a shrink dies with it, and a promoted file is whole or not there.
TEST_F(Campaign, AKilledShrinkLeavesAWholeRegressionOrNone) {
  const std::string regressions = folder_ / "scenarios/regressions";
  std::filesystem::create_directories(folder_ / "scenarios/library");
  std::filesystem::create_directories(regressions);
  const std::string file = folder_.file("case.yaml", "schema: 1\nname: case\nnumerics: [fp32]\n");
  const std::string line =
      "shrink " + file + " --device sim --plant rms-norm-forgets-eps --promote";
  ::setenv("LOCKSTEP_LIBRARY", (folder_ / "scenarios/library").c_str(), 1);
  for (int i = 0; i < kills_asked(); ++i) {
    Started shrinking(line);
    pause_ms(any_moment(20, 900));
    const std::vector<pid_t> workers = children_of(shrinking.pid());
    shrinking.kill_now();
    for (const pid_t worker : workers)
      EXPECT_TRUE(comes_true([&] { return !lives(worker); })) << worker;
    for (const std::string& one : files_in(regressions))
      EXPECT_TRUE(read_scenario_file(one).ok()) << slurp(one);
  }
  EXPECT_EQ(run_lockstep(line).status, 0);
  ::unsetenv("LOCKSTEP_LIBRARY");
  EXPECT_FALSE(files_in(regressions).empty());
  EXPECT_THAT(temporaries_in(regressions), IsEmpty());
}

}  // namespace
}  // namespace lockstep
