// A command that a signal ends writes its reports, marked as interrupted, ends with status 5 and
// leaves no process, folder or temporary file behind.
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/json.hpp>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "tests/support/patience.h"
#include "tests/support/program.h"
#include "tests/support/started.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Whether the process handles the signal itself: /proc/PID/status has a bit for each signal.
bool catches(pid_t process, int signal) {
  const std::string status = slurp("/proc/" + std::to_string(process) + "/status");
  const std::size_t at = status.find("SigCgt:\t");
  if (at == std::string::npos) return false;
  const std::uint64_t caught = std::stoull(status.substr(at + 8, 16), nullptr, 16);
  return (caught >> (signal - 1) & 1) != 0;
}

// Processes whose command line holds the text. Workers have that of their parent.
int processes_of(const std::string& text) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto process = static_cast<pid_t>(std::stol(name));
    if (lives(process) && slurp(entry.path() / "cmdline").find(text) != std::string::npos) ++count;
  }
  return count;
}

class Signals : public testing::Test {
 protected:
  Signals() {
    std::filesystem::create_directory(folder_ / "tmp");
    ::setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
  }
  ~Signals() override { ::unsetenv("TMPDIR"); }

  // Sends each of the three signals at a moment of its own after the start.
  void ends_well(const std::string& words) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      const int pause = static_cast<int>(random_() % 700);
      SCOPED_TRACE(words + ": signal " + std::to_string(signal) + " after " +
                   std::to_string(pause) + " ms");
      ends_well(words, signal, pause);
    }
  }

  void ends_well(const std::string& words, int signal, int pause) {
    const std::string json = folder_ / "report.json", junit = folder_ / "report.xml";
    const std::string output = folder_ / "output";
    for (const std::string& file : {json, junit}) std::filesystem::remove(file);
    const std::string page = folder_ / "report.html";
    std::filesystem::remove(page);
    const bool has_junit = words.find("mutate") != 0 && words.find("bench") != 0;
    bool has_page = words.find("mutate") == 0 || words.find("replay") == 0;
    Started command(words + " --json " + json + (has_junit ? " --junit " + junit : "") +
                        (has_page ? " --html " + page : ""),
                    0, output);
    ASSERT_TRUE(comes_true([&] { return catches(command.pid(), signal); }));
    pause_ms(pause);
    const auto sent = Clock::now();
    ASSERT_EQ(::kill(command.pid(), signal), 0);
    EXPECT_EQ(command.exit_status(), 5) << slurp(output);
    const auto took = Clock::now() - sent;
    EXPECT_LT(took, std::chrono::seconds(10));
    // What ends a command after five seconds writes no page: a sanitizer may make it so slow.
    if (took > std::chrono::seconds(4) && patience() > 1) has_page = false;
    // A rank of a worker that was killed dies with it, a moment later.
    EXPECT_TRUE(comes_true([&] { return processes_of(json) == 0; }));
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "tmp"));
    EXPECT_NE(slurp(output).find("interrupted by SIG"), std::string::npos) << slurp(output);
    EXPECT_EQ(slurp(output).find(" cases were not run") != std::string::npos,
              words.find("verify") == 0)
        << slurp(output);
    ASSERT_TRUE(std::filesystem::exists(json));
    EXPECT_TRUE(boost::json::parse(slurp(json)).at("interrupted").as_bool());
    EXPECT_EQ(slurp(page).find("Interrupted: what was done") != std::string::npos, has_page);
    EXPECT_EQ(slurp(junit).find("interrupted") != std::string::npos, has_junit);
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  }

  const TemporaryFolder folder_;

 private:
  std::mt19937 random_{20};
};

TEST_F(Signals, EndVerify) {
  ends_well("verify --device sim --schedules 100000 " + library_file("graph-modules-together"));
}

TEST_F(Signals, EndVerifyOfSeveralWorkersAndTheirRanks) {
  ends_well("verify --device sim --jobs 3 --schedules 100000 " +
            library_file("fsdp-full-iteration-optim") + " " +
            library_file("fsdp-full-iteration-no-shard") + " " +
            library_file("graph-modules-together"));
}

TEST_F(Signals, EndShrink) {
  ends_well("shrink --device sim --budget 1000 --timeout 2 --plant harness-test-hang " +
            library_file("graph-modules-together") + " -o " + (folder_ / "small.yaml"));
}

// Most moments lie in the seconds in which the runs of the library are recorded.
TEST_F(Signals, EndMutate) { ends_well("mutate --device sim --jobs 2"); }

TEST_F(Signals, EndReplay) {
  ends_well("replay --device sim --plant harness-test-hang " +
            library_file("graph-modules-together"));
}

TEST_F(Signals, EndTrain) {
  ends_well("train --device sim --steps 1000000 --checkpoint-every 3 --checkpoint " +
            (folder_ / "checkpoint") + " " + library_file("graph-modules-together"));
}

TEST_F(Signals, EndTrainOfProcesses) {
  ends_well("train --device sim --steps 1000000 " + library_file("fsdp-full-iteration-optim"));
}

TEST_F(Signals, EndTheOracle) {
  ends_well("train --oracle --steps 1000000 " + library_file("graph-modules-together"));
}

TEST_F(Signals, EndBench) { ends_well("bench --device sim --section schedules --budget 1000"); }

// It does not ask between its cases, so that it is ended when its time to do so is over.
TEST_F(Signals, EndWhatDoesNotEndByItself) {
  ends_well("bench --device sim --section door --cases 1000000", SIGTERM, 300);
}

}  // namespace
}  // namespace lockstep
