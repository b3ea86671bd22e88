// Inputs that somebody sends to be looked at, and slips of our own: files that take too long to
// read or too much memory to run, and bytes that a terminal would obey.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "harness/base/machine_memory.h"
#include "harness/report/describe_json.h"
#include "harness/run/worker.h"
#include "scenarios/io/reader.h"
#include "scenarios/syntax/schema_text.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs the program with a limit of address space, in MiB, and of CPU seconds. The kernel kills a
// process that takes more, so no clock is read here and a busy machine changes nothing.
Ran run_within(int mebibytes, int cpu_seconds, const std::string& words) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return run_lockstep(words);  // A sanitizer's address space is above any limit.
#endif
  const TemporaryFolder folder;
  const std::string command = "ulimit -v " + std::to_string(mebibytes << 10) + "; ulimit -t " +
                              std::to_string(cpu_seconds) + "; " + lockstep_program() + " " +
                              words + " >" + (folder / "out") + " 2>" + (folder / "err");
  const int code = std::system(shell_command(command).c_str());
  return {WIFEXITED(code) ? WEXITSTATUS(code) : -1, slurp(folder / "out"), slurp(folder / "err")};
}

// Whether nothing in it but newlines and tabs is for the terminal.
bool is_plain(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) {
                        return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') ||
                               c == 0x7F;
                      }) &&
         text.find("\xC2\x9B") == std::string::npos &&
         text.find("\xE2\x80\xAE") == std::string::npos;
}

// The item so many times, with 1, 2, ... in the place of its #.
std::string numbered(const std::string& item, int count) {
  std::string list;
  for (int i = 1; i <= count; ++i) {
    const std::size_t place = item.find('#');
    list += (i == 1 ? "" : ", ") + item.substr(0, place);
    if (place != std::string::npos) list += std::to_string(i) + item.substr(place + 1);
  }
  return list;
}

// Each was read in a time that grows with the square of its length, minutes for the first.
TEST(HostileInput, LongListsAreReadInLinearTime) {
  const TemporaryFolder folder;
  const std::pair<std::string, int> kFiles[] = {
      {"numerics: [" + numbered("fp32", 95'000) + "]", 2},
      {"training: {steps: 1000000, recapture_at: [" + numbered("#", 95'000) + "]}", 2},
      {"training: {steps: 1000000, change_microbatches_at: [" +
           numbered("{step: #, microbatches: 2}", 28'000) +
           "]}\ndata: {kind: distribution, distribution: {max: 1, fill: 0}}",
       0},
      {"training: {microbatches: 1024}\nparallel: {data: 64}\ndata: {mask: {microbatches: [" +
           numbered("#", 65'000) + "]}}",
       0},
      {"expect: {counters: {" + numbered("k#: 1", 75'000) + "}}", 2}};
  for (const auto& [keys, status] : kFiles) {
    const Ran ran = run_within(
        200, 2, "describe " + folder.file("a.yaml", "schema: 1\nname: a\n" + keys + "\n"));
    EXPECT_EQ(ran.status, status) << keys.substr(0, 80) << ran.err;
    EXPECT_LT(ran.err.size(), 10'000u);
  }
  EXPECT_THAT(
      run_lockstep("describe " + folder.file("a.yaml", "schema: 1\nname: a\n" + kFiles[0].first))
          .err,
      HasSubstr("numerics[1]: `fp32` is out of range [Y06]: it takes each word at most "
                "once; nearest legal: [fp32]"));
}

TEST(HostileInput, OnlyTheFirstErrorsOfAFileArePrinted) {
  const TemporaryFolder folder;
  std::string text = "schema: 1\nname: a\n";
  for (int i = 0; i < 30'000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  const Ran ran = run_lockstep("describe " + folder.file("a.yaml", text));
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("k19: is no key"), Not(HasSubstr("k20: is no key")),
                             HasSubstr("a.yaml: and 29980 more errors")));
}

TEST(HostileInput, ARecordWithoutAnEndIsRefusedBeforeItIsHeld) {
  const TemporaryFolder folder;
  const std::string data = folder.file("d.jsonl", "");
  const std::string file = folder.file(
      "a.yaml", "schema: 1\nname: a\ndata: {kind: jsonl, path: d.jsonl, long_documents: split}\n");
  fs::resize_file(data, 1'000'000'000);
  const Ran sparse = run_within(1000, 10, "describe " + file);
  EXPECT_EQ(sparse.status, 2);
  EXPECT_THAT(sparse.err, HasSubstr("d.jsonl:1: has a NUL byte"));
  std::ofstream(data) << std::string(70 << 20, 'x');
  const Ran long_line = run_within(1000, 10, "describe " + file);
  EXPECT_EQ(long_line.status, 2);
  EXPECT_THAT(long_line.err, HasSubstr("d.jsonl:1: is longer than 64 MiB"));
}

// Enormous and legal: 10^6 steps of a large model; a million empty documents a microbatch; more
// microbatches than anybody counts; weights alone; 10^6 short steps.
const char* const kEnormous[] = {
    "model: {hidden: 16384, moe: {experts: 256}, pattern: \"E*M-\"}\n"
    "data: {kind: distribution, pack_length: 1048576, distribution: {max: 1048576}}\n"
    "training: {steps: 1000000}\n",
    "data: {kind: distribution, pack_length: 1048576, distribution: {min: 0, max: 0, empty: 1}}\n"
    "training: {microbatches: 1024, steps: 2}\n",
    "data: {pack_length: 1048576, mask: {rate: 0.999999}}\n"
    "training: {steps: 1000000, microbatches: 1024, in_flight: 16}\nparallel: {data: 64}\n",
    "model: {hidden: 16384, vocab: 262144, mlp: {hidden: 65536}, pattern: \"EEEEEEEEEEEEEEEE\", "
    "moe: {experts: 256, hidden: 65536}}\n",
    "training: {steps: 1000000, eval_every: 1}\nmodel: {pattern: \"E\", hidden: 4096, vocab: "
    "65536}\ndata: {documents: [[[0, 2, 0, 0, 0]]]}\n"};

TEST(HostileInput, AnEnormousScenarioIsDescribedAtOnce) {
  const TemporaryFolder folder;
  for (const char* keys : kEnormous) {
    const std::string file =
        folder.file("a.yaml", std::string("schema: 1\nname: a\nnumerics: [fp32]\n") + keys);
    const Ran ran = run_within(200, 2, "describe --json " + (folder / "a.json") + " " + file);
    EXPECT_EQ(ran.status, 0) << keys << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("memory of train"), HasSubstr("memory of verify"),
                               HasSubstr("multiply-adds of the engine")));
    const auto estimate = boost::json::parse(slurp(folder / "a.json")).at("estimate");
    EXPECT_GT(estimate.at("verify_bytes").as_double(), 1e9) << keys;
  }
  EXPECT_THAT(run_lockstep("describe " + folder.file("a.yaml", std::string("schema: 1\nname: a\n") +
                                                                   kEnormous[0]))
                  .out,
              HasSubstr("not counted: too many"));
}

TEST(HostileInput, ARunThatNeedsMoreMemoryThanThereIsIsRefused) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("a.yaml", std::string("schema: 1\nname: a\n") + kEnormous[3]);
  for (const char* command : {"verify", "train", "train --oracle", "replay"}) {
    const Ran ran = run_lockstep(std::string(command) + " --device sim " + file);
    EXPECT_EQ(ran.status, 3) << command;
    EXPECT_THAT(ran.err,
                AllOf(HasSubstr("a: it takes at least"), HasSubstr("of memory, and"),
                      HasSubstr("lower model.pattern, model.hidden"), HasSubstr("--any-size")))
        << command;
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const Ran forced = run_within(4000, 60, "verify --any-size --device sim " + file);
  EXPECT_EQ(forced.status, 3) << forced.err;
  EXPECT_THAT(forced.out, HasSubstr("broken by memory: out of host memory"));
#endif
  // The other files of a folder run, and a campaign gives the case up.
  folder.file("all/large.yaml",
              std::string("schema: 1\nname: large\nnumerics: [fp32]\n") + kEnormous[3]);
  folder.file("all/small.yaml",
              "schema: 1\nname: small\nnumerics: [fp32]\nmodel: {pattern: \"-\"}\n");
  const Ran both = run_lockstep("verify --device sim " + (folder / "all"));
  EXPECT_EQ(both.status, 5) << both.err;
  EXPECT_THAT(both.out, HasSubstr("1 held, 0 violated, 0 broken, 1 gave up"));
  const Ran fuzz =
      run_lockstep("fuzz --device sim --count 1 --jobs 1 --corpus " + (folder / "all"));
  EXPECT_EQ(fuzz.status, 5) << fuzz.out;
  EXPECT_THAT(fuzz.out, HasSubstr("0 violated, 0 broken, 1 gave up"));
}

// The files under scenarios/ that can be read, in the order of their paths.
std::vector<std::string> legal_files() {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root_path() + "/scenarios")) {
    const std::string path = entry.path().string();
    if (entry.path().extension() == ".yaml" && path.find("/refused/") == std::string::npos)
      files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Each file is counted in full, and none comes near the memory of a small machine.
TEST(HostileInput, NothingOfTheLibraryNeedsMuchMemory) {
  const std::vector<std::string> files = legal_files();
  EXPECT_GT(files.size(), 100u);
  for (const std::string& path : files) {
    const auto described = boost::json::parse(describe_json(read_scenario_file(path)));
    ASSERT_TRUE(described.at("legal").as_bool()) << path;
    EXPECT_LT(described.at("estimate").at("verify_bytes").as_double(), 1e9) << path;
    EXPECT_TRUE(described.as_object().contains("expected_counters") ||
                !described.at("built").as_bool())
        << path << " is not counted";
  }
}

// A program and its tests may be of different builds.
boost::json::object without_revision(const std::string& report) {
  boost::json::object described = boost::json::parse(report).as_object();
  described.erase("revision");
  return described;
}

// As the program describes it, which runs two small models of the oracle for each precision: every
// 16th file, or every LOCKSTEP_DESCRIBED-th.
TEST(HostileInput, TheLibraryIsDescribed) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = legal_files();
  const char* const wanted = std::getenv("LOCKSTEP_DESCRIBED");
  const std::size_t step = wanted ? std::stoul(wanted) : 16;
  for (std::size_t i = 0; i < files.size(); i += step) {
    const Ran ran = run_lockstep("describe --json " + (folder / "a.json") + " " + files[i]);
    ASSERT_EQ(ran.status, 0) << files[i] << ran.err;
    EXPECT_EQ(without_revision(slurp(folder / "a.json")),
              without_revision(describe_json(read_scenario_file(files[i]))))
        << files[i];
    EXPECT_THAT(ran.out, HasSubstr("legality: legal")) << files[i];
  }
}

TEST(HostileInput, MemoryIsThatOfTheMachineAndItsControlGroups) {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  EXPECT_EQ(machine_memory(root).bytes, INT64_MAX);
  folder.file("proc/meminfo", "MemTotal: 8 kB\nMemAvailable:    4000000 kB\nSwapFree: 1 kB\n");
  EXPECT_EQ(machine_memory(root).bytes, 4'096'000'000);
  folder.file("proc/self/cgroup", "4:memory:/a/b\n0::/c/d\n");
  folder.file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  folder.file("sys/fs/cgroup/c/d/memory.max", "max\n");
  EXPECT_EQ(machine_memory(root).source, "MemAvailable");
  folder.file("sys/fs/cgroup/c/memory.max", "2000000000\n");
  EXPECT_EQ(machine_memory(root).bytes, 2'000'000'000);
  EXPECT_EQ(machine_memory(root).source, "the control group's limit");
  folder.file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000000\n");
  EXPECT_EQ(machine_memory(root).bytes, 1'000'000'000);
}

TEST(HostileInput, NothingThatATerminalObeysIsPrinted) {
  const TemporaryFolder folder;
  const auto plain = [](const Ran& ran) {
    EXPECT_TRUE(is_plain(ran.out + ran.err)) << ran.out << ran.err;
    return ran.err;
  };
  // An unknown key.
  EXPECT_THAT(plain(run_lockstep("describe " + folder.file("key.yaml",
                                                           "schema: 1\nname: a\n"
                                                           "\"\\e[31mk\\a\": 1\n"))),
              HasSubstr("\\x1b[31mk\\x07: is no key"));
  // A description.
  const Ran described =
      run_lockstep("describe " + folder.file("said.yaml",
                                             "schema: 1\nname: a\n"
                                             "description: \"\xC2\x9B 31m \xE2\x80\xAE evil\"\n"));
  EXPECT_EQ(described.status, 0) << described.err;
  plain(described);
  EXPECT_THAT(described.out, HasSubstr("\\u009b 31m \\u202e evil"));
  // The name of a data file, with a line that speaks to a runner.
  folder.file("docs/a\x1b[31m\n::error::b", std::string("a\0b", 3));
  const std::string named = plain(run_lockstep(
      "describe " +
      folder.file("data.yaml", "schema: 1\nname: a\ndata: {kind: text, path: docs}\n")));
  EXPECT_THAT(named, HasSubstr("a\\x1b[31m\\x0a::error::b:1: has a NUL byte"));
  // Words of the command line.
  EXPECT_THAT(plain(run_lockstep("\"$(printf 'x\\033[31m')\"")),
              HasSubstr("unknown command x\\x1b[31m"));
  EXPECT_THAT(plain(run_lockstep("verify \"$(printf -- '--x\\033[31m')\"")),
              HasSubstr("unknown option --x\\x1b[31m"));
  // A checkpoint's metadata.
  write_checkpoint(folder / "ck", {{{"contract", "\x1b[31mRED\a\n::error::"}}, {}});
  EXPECT_THAT(plain(run_lockstep("train --device sim --resume " + (folder / "ck") + " " +
                                 folder.file("a.yaml", "schema: 1\nname: a\n"))),
              HasSubstr("contract is \\x1b[31mRED\\x07\\x0a::error::, not"));
}

TEST(HostileInput, ReportsAreValidForAnyFileName) {
  const TemporaryFolder folder;
  const std::string odd = folder.file("\xFF\xEF\xBF\xBF\x1b.yaml",
                                      "schema: 1\nname: a\nmodel: {pattern: \"-\"}\nk: 1\n");
  const std::string json = folder / "a.json", junit = folder / "a.xml";
  EXPECT_EQ(run_lockstep("describe --json " + json + " " + odd).status, 2);
  const std::string text = slurp(json);
  EXPECT_EQ(as_utf8(text), text);
  EXPECT_THAT(boost::json::parse(text).at("errors").at(0).at("file").as_string().c_str(),
              HasSubstr("\xEF\xBF\xBD\xEF\xBF\xBF"));
  const std::string good =
      folder.file("\xFF\xEF\xBF\xBF\x1b.yaml", "schema: 1\nname: a\nmodel: {pattern: \"-\"}\n");
  ASSERT_EQ(
      run_lockstep("verify --device sim --json " + json + " --junit " + junit + " " + good).status,
      0);
  EXPECT_EQ(as_utf8(slurp(json)), slurp(json));
  const std::string xml = slurp(junit);
  EXPECT_EQ(as_utf8(xml), xml);
  EXPECT_THAT(xml,
              AllOf(HasSubstr("???.yaml"), Not(HasSubstr("\xEF\xBF\xBF")), Not(HasSubstr("\x1b"))));
}

TEST(HostileInput, ACheckpointOfAPipeIsRefused) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string file = folder.file("a.yaml", "schema: 1\nname: a\n");
  for (const std::string& from : {pipe, std::string("/dev/zero"), folder.path()}) {
    const Ran ran = run_lockstep("train --device sim --resume " + from + " " + file);
    EXPECT_EQ(ran.status, 3) << from;
    EXPECT_THAT(ran.err, HasSubstr("is not a regular file")) << from;
  }
}

TEST(HostileInput, ADeadlineThatNoClockHoldsIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.file("a.yaml", "schema: 1\nname: a\n");
  for (const char* option : {"--deadline 1e12", "--deadline 1e300", "--timeout 1e10"}) {
    const Ran ran = run_lockstep("verify --device sim " + std::string(option) + " " + file);
    EXPECT_EQ(ran.status, 2) << option;
    EXPECT_THAT(ran.err, HasSubstr("must be at most 1000000000 seconds")) << option;
  }
  EXPECT_EQ(run_lockstep("verify --device sim --deadline 1e9 --timeout 1e9 " + file).status, 0);
}

TEST(HostileInput, WhatABlindedCheckerLetPassIsNoPass) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("a.yaml", "schema: 1\nname: a\nnumerics: [fp32]\nmodel: {pattern: \"-\"}\n");
  const Ran ran = run_lockstep("verify --device sim --mutate-checker poison-is-a-value " + file);
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("it held, but the checker has the planted error poison-is-a-value"),
                    HasSubstr("0 held, 1 violated")));
}

TEST(HostileInput, AnotherCudaObjectIsLoadedByItsOptionAlone) {
  const TemporaryFolder folder;
  const std::string object = folder.file("other.so", "no object");
  const Ran named = run_lockstep("doctor --cuda-object " + object);
  ASSERT_EQ(::setenv("LOCKSTEP_CUDA_OBJECT", object.c_str(), 1), 0);
  const Ran by_variable = run_lockstep("doctor");
  ::unsetenv("LOCKSTEP_CUDA_OBJECT");
  EXPECT_THAT(named.out + named.err, HasSubstr(object));
  EXPECT_THAT(by_variable.out + by_variable.err, Not(HasSubstr(object)));
}

TEST(HostileInput, AKilledWorkerIsSaidToLackMemory) {
  const ChildEnd end = run_in_child(
      [] {
        ::raise(SIGKILL);
        return std::string();
      },
      60);
  CaseResult result;
  judge_death(result, end, 60);
  EXPECT_EQ(result.verdict, Verdict::broken);
  EXPECT_EQ(result.judge, JudgeKind::memory);
  EXPECT_EQ(result.reason, "the worker was killed by SIGKILL, probably for want of memory");
}

}  // namespace
}  // namespace lockstep
