// Help, completion, the manual, short forms, times with units, and "-" for standard input and
// output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <sstream>

#include "harness/base/options.h"
#include "harness/cli/commands.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr const char* kSmall = "schema: 1\nname: small\nnumerics: [fp32]\n";

// What bash offers for `words` with the cursor behind the last of them.
std::string completed(const TemporaryFolder& folder, const std::string& words, int cursor) {
  const std::string script = folder.file("lockstep.bash", completion_script("bash"));
  const std::string line = "bash -c 'source " + script + "; COMP_WORDS=(" + words +
                           "); COMP_CWORD=" + std::to_string(cursor) +
                           "; _lockstep; echo \"${COMPREPLY[@]}\"' >" + (folder / "offered");
  EXPECT_EQ(std::system(line.c_str()), 0);
  return slurp((folder / "offered"));
}

TEST(Help, EachCommandHasExitStatusesAndShortForms) {
  for (const Command& command : commands()) {
    const std::string name = command.name;
    const Ran help = run_lockstep("help " + name);
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_EQ(help.out, run_lockstep(name + " --help").out) << name;
    EXPECT_EQ(help.out, run_lockstep(name + " -h").out) << name;
    EXPECT_THAT(help.out, HasSubstr("exit status: 0 all held")) << name;
    EXPECT_THAT(help.out, HasSubstr("-q --quiet")) << name;
  }
  EXPECT_EQ(run_lockstep("-h").out, run_lockstep("--help").out);
  EXPECT_EQ(run_lockstep("-V").out, run_lockstep("--version").out);
  EXPECT_THAT(run_lockstep("help verify").out, HasSubstr("examples:"));
  EXPECT_EQ(run_lockstep("help nothing").status, 2);
}

TEST(Help, ExamplesNameOptionsThatExist) {
  for (const Command& command : commands()) {
    const Options options = command.options();
    for (const Options::Example& one : options.examples()) {
      std::istringstream words(one.line.substr(one.line.rfind("lockstep ")));
      std::string program, name;
      words >> program >> name;
      EXPECT_EQ(name, command.name);
      for (std::string word; words >> word;) {
        if (word.rfind("--", 0) != 0) continue;
        EXPECT_TRUE(options.knows(word.c_str() + 2)) << one.line << ": " << word;
      }
    }
  }
}

TEST(Help, AnOptionOfAnotherCommandIsNamedAsThat) {
  const Ran ran = run_lockstep("verify --seed 1");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("verify has no option --seed; it belongs to fuzz"));
}

TEST(Completion, BashOffersCommandsOptionsAndChoices) {
  const TemporaryFolder folder;
  EXPECT_EQ(completed(folder, "lockstep ver", 1), "verify\n");
  EXPECT_EQ(completed(folder, "lockstep verify --dev", 2), "--device\n");
  EXPECT_EQ(completed(folder, "lockstep verify --device c", 3), "cuda\n");
  EXPECT_EQ(completed(folder, "lockstep completion \"\"", 2), "bash zsh\n");
  EXPECT_EQ(completed(folder, "lockstep fuzz --with processes,c", 3),
            "processes,cudnn processes,cudnn,fp8\n");
  EXPECT_EQ(completed(folder, "lockstep verify --plant rms-norm-forgets", 3),
            "rms-norm-forgets-eps\n");
}

TEST(Completion, ZshKnowsEachOption) {
  const std::string script = completion_script("zsh");
  for (const Command& command : commands()) {
    for (const OptionHelp& one : command.options().all())
      EXPECT_THAT(script, HasSubstr("'--" + one.name + (one.takes_value ? "=" : "") + "["));
  }
  EXPECT_EQ(run_lockstep("completion fish").status, 2);
}

TEST(Manual, HasEachCommandAndOption) {
  const std::string page = manual_page();
  EXPECT_EQ(run_lockstep("man").out, page);
  for (const Command& command : commands()) {
    for (const OptionHelp& one : command.options().all()) {
      std::string typed;
      for (const char byte : "--" + one.name) typed += byte == '-' ? "\\-" : std::string(1, byte);
      EXPECT_THAT(page, HasSubstr(typed)) << command.name;
    }
  }
}

double seconds_of(const std::string& word) {
  Options options("verify", "", "", 0);
  options.seconds("timeout", "");
  options.parse({"--timeout", word});
  return options.seconds("timeout");
}

TEST(Times, MayHaveAUnit) {
  EXPECT_EQ(seconds_of("90"), 90);
  EXPECT_EQ(seconds_of("1.5"), 1.5);
  EXPECT_EQ(seconds_of("500ms"), 0.5);
  EXPECT_EQ(seconds_of("90s"), 90);
  EXPECT_EQ(seconds_of("5m"), 300);
  EXPECT_EQ(seconds_of("1.5h"), 5400);
  for (const char* word : {"", "s", "1x", "1 m 2", "1d", "five", "nan", "inf", "1e9h", "-1s", "0"})
    EXPECT_THROW(seconds_of(word), RequestError) << word;
}

TEST(Dash, IsStandardInputAndOutput) {
  const TemporaryFolder folder;
  const std::string file = folder.file("small.yaml", kSmall);
  const Ran ran = run_lockstep("verify --device sim - --json - <" + file);
  ASSERT_EQ(ran.status, 0) << ran.err;
  // The report alone: the table went to standard error.
  const boost::json::object report = boost::json::parse(ran.out).as_object();
  EXPECT_EQ(report.at("results").at(0).at("name").as_string(), "small");
  EXPECT_THAT(ran.err, HasSubstr("1 held"));
  const Ran refused = run_lockstep("describe - --json=- </dev/null");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(boost::json::parse(refused.out).is_object()) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("-:1:1"));
}

TEST(Refusal, ShowsTheLineAndTheColumn) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("case.yaml", "schema: 1\nname: a\nnumerics: [fp32]\nmodel: {num_layers: 4}\n");
  const Ran ran = run_lockstep("describe " + file);
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("\n  4 | model: {num_layers: 4}\n    |         ^"));
}

}  // namespace
}  // namespace lockstep
