// An output never replaces an input or another output, and the files of others stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CommandFiles : public testing::Test {
 protected:
  // The command is refused with status 2 and these words, and no file changes.
  void refused(const std::string& words, const std::string& said) {
    SCOPED_TRACE(words);
    const std::string before = all();
    const Ran ran = run_lockstep(words);
    EXPECT_EQ(ran.status, 2) << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(said));
    EXPECT_EQ(all(), before);
  }

  const TemporaryFolder folder_;
  const std::string scenario_ =
      folder_.file("in.yaml", "schema: 1\nname: small\ntraining: {steps: 2}\n");
  const std::string lines_ = folder_.file(
      "data.jsonl", "{\"text\": \"one document of some bytes\"}\n{\"text\": \"another one\"}\n");
  const std::string trained_ = folder_.file(
      "trained.yaml",
      "schema: 1\nname: trained\nmodel: {vocab: 256}\ndata: {kind: jsonl, path: data.jsonl}\n"
      "training: {steps: 2}\n");

 private:
  // Names and contents of all files.
  std::string all() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) files[entry.path().string()] = slurp(entry.path().string());
    }
    std::string text;
    for (const auto& [name, content] : files) text += name + "\n" + content + "\n";
    return text;
  }
};

TEST_F(CommandFiles, AnOutputIsNoInput) {
  for (const char* command : {"verify", "describe", "replay", "train", "bench"})
    refused(std::string(command) + " --device sim " + scenario_ + " --json " + scenario_,
            "would overwrite what the command reads");
  refused("shrink --device sim " + scenario_ + " --json " + scenario_, "-o FILE");
  fs::create_hard_link(scenario_, folder_ / "other.yaml");
  refused("verify --device sim " + scenario_ + " --json " + (folder_ / "other.yaml"), "in.yaml");
  refused("verify --device sim " + scenario_ + " --html " + (folder_ / "./in.yaml"), "in.yaml");
  refused("verify --device sim " + folder_.path() + " --json " + scenario_, "--json");
  refused("shrink --device sim " + scenario_ + " -o " + scenario_, "--output");
  refused("train --device sim " + scenario_ + " --checkpoint " + scenario_, "--checkpoint");
}

TEST_F(CommandFiles, AnOutputIsNoData) {
  refused("train --device sim " + trained_ + " --checkpoint " + lines_, "data.jsonl");
  for (const char* command : {"verify", "describe", "replay", "plan-packing"})
    refused(std::string(command) + " --device sim " + trained_ + " --json " + lines_, "data.jsonl");
  fs::create_directory(folder_ / "texts");
  folder_.file("texts/a.txt", "a text of some bytes");
  const std::string reads_folder = folder_.file(
      "texts.yaml",
      "schema: 1\nname: texts\nmodel: {vocab: 256}\ndata: {kind: text, path: texts}\n");
  refused("verify --device sim " + reads_folder + " --json " + (folder_ / "texts/report.json"),
          "would overwrite");
}

TEST_F(CommandFiles, TwoOutputsAreTwoFiles) {
  const std::string one = folder_ / "one";
  refused("verify --device sim " + scenario_ + " --json " + one + " --junit " + one,
          "--json and --junit name one file");
  // Neither exists yet, and the folder has several names.
  const std::string relative = fs::relative(one).string();
  for (const std::string& other : {"./" + relative, one, folder_ / "./one"})
    refused("verify --device sim " + scenario_ + " --json " + relative + " --junit " + other,
            "--json and --junit name one file");
  refused("train --device sim " + scenario_ + " --json " + one + " --checkpoint " + one,
          "name one file");
  EXPECT_EQ(run_lockstep("verify --quiet --device sim " + scenario_ +
                         " --json /dev/null --junit /dev/null")
                .status,
            0);
}

TEST_F(CommandFiles, ACheckpointReplacesACheckpointAlone) {
  const std::string notes = folder_.file("notes", "of the user");
  refused("train --device sim " + scenario_ + " --checkpoint " + notes, "none of its own");
  const std::string train = "train --quiet --device sim " + scenario_ + " --checkpoint " +
                            (folder_ / "checkpoint") + " --steps ";
  EXPECT_EQ(run_lockstep(train + "1").status, 0);
  EXPECT_EQ(run_lockstep(train + "2 --resume " + (folder_ / "checkpoint")).status, 0);
  refused("train --device sim " + scenario_ + " --resume " + (folder_ / "checkpoint") + " --json " +
              (folder_ / "checkpoint"),
          "--resume");
}

TEST_F(CommandFiles, ACampaignRemovesItsOwnFilesAlone) {
  fs::create_directory(folder_ / "log.state");
  folder_.file("log.state/notes", "of the user");
  const std::string fuzz =
      "fuzz --quiet --device sim --seed 1 --count 1 --log " + (folder_ / "log");
  const Ran ran = run_lockstep(fuzz);
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, HasSubstr("holds notes"));
  EXPECT_EQ(slurp(folder_ / "log.state/notes"), "of the user");
  EXPECT_FALSE(fs::exists(folder_ / "log"));
  fs::remove(folder_ / "log.state/notes");
  folder_.file("log.state/worker-0.yaml", "of a campaign that was killed");
  EXPECT_EQ(run_lockstep(fuzz).status, 0);
  EXPECT_FALSE(fs::exists(folder_ / "log.state"));
}

TEST_F(CommandFiles, AReportDoesNotTakeThePlaceOfACorpus) {
  const std::string place = folder_ / "place",
                    fuzz = "fuzz --quiet --device sim --seed 1 --count 1 --html " + place;
  refused(fuzz + " --corpus " + place, "names the folder of --corpus");
  EXPECT_FALSE(fs::exists(place));
  fs::create_directory(place);
  // A report may lie beside the scenarios.
  EXPECT_EQ(run_lockstep("fuzz --quiet --device sim --seed 1 --count 1 --html " + place +
                         "/report.html --corpus " + place)
                .status,
            0);
}

TEST_F(CommandFiles, AMeetingWantsALauncher) {
  refused("train --device sim " + scenario_ + " --meeting 127.0.0.1:40000", "of a launcher");
}

// The temporary's name can be guessed: a link that somebody put there is not written through.
TEST_F(CommandFiles, ALinkAtTheTemporaryIsNotFollowed) {
  folder_.file("victim", "precious");
  const std::string out = folder_ / "out.json";
  const std::string command = "ln -s victim " + out + ".tmp.$$; exec " + lockstep_program() +
                              " verify --quiet --device sim " + scenario_ + " --json " + out;
  ASSERT_EQ(std::system(shell_command("bash -c '" + command + "'").c_str()), 0);
  EXPECT_EQ(slurp(folder_ / "victim"), "precious");
  EXPECT_FALSE(fs::is_symlink(out));
  EXPECT_THAT(slurp(out), HasSubstr("\"tool\":\"lockstep\""));
}

}  // namespace
}  // namespace lockstep
