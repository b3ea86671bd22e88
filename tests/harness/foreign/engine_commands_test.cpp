// The commands with --engine, on lockstep's own engine: campaigns, shrinking, replay, expected
// failures, what an engine says of itself.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "tests/harness/foreign/own_engine.h"

namespace lockstep {
namespace {

namespace json = boost::json;

constexpr const char* kFault = "target-of-the-next-document";

std::string with_engine(const std::string& fault = "") {
  return " --engine '" + own_engine(fault) + "' ";
}

json::object report(const std::string& path) { return json::parse(slurp(path)).as_object(); }

class EngineCommands : public testing::Test {
 protected:
  std::string scenario(const std::string& name) const {
    return folder_.file(name + ".yaml", own_engine_text(name, own_engine_texts().at(name)));
  }
  const TemporaryFolder folder_;
};

// The command behind "replay: lockstep ".
std::string replay_in(const std::string& text) {
  const std::string mark = "replay: lockstep ";
  const std::size_t at = text.find(mark);
  return at == std::string::npos
             ? "no replay line"
             : text.substr(at + mark.size(), text.find('\n', at) - at - mark.size());
}

TEST_F(EngineCommands, ACampaignFindsAFaultAndPrintsALineThatReplaysIt) {
  const std::string json_path = folder_ / "fuzz.json";
  const Ran fuzz =
      run_lockstep("fuzz --seed 7 --count 40 --stop-after 1 --corpus " + (folder_ / "corpus") +
                   " --json " + json_path + with_engine(kFault));
  ASSERT_EQ(fuzz.status, 1) << fuzz.out << fuzz.err;
  EXPECT_NE(fuzz.out.find("features that the engine announces"), std::string::npos) << fuzz.out;
  EXPECT_NE(fuzz.out.find("violated by relation: R"), std::string::npos) << fuzz.out;
  const Ran replay = run_lockstep(replay_in(fuzz.out));
  EXPECT_EQ(replay.status, 1) << replay.out << replay.err;
  const json::object found = report(json_path);
  const json::object& first = found.at("results").as_array().at(0).as_object();
  EXPECT_NE(replay.out.find(std::string(first.at("reason").as_string())), std::string::npos)
      << replay.out;
  EXPECT_GT(found.at("coverage").at("features").as_object().size(), 40u);
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "corpus"))
    kept += entry.path().extension() == ".yaml";
  EXPECT_EQ(kept, 1);
}

TEST_F(EngineCommands, ACampaignGoesOnWhereItsLogEnds) {
  const std::string words = "fuzz --quiet --seed 3 --relation R15 --log " + (folder_ / "log");
  const Ran first = run_lockstep(words + " --count 3" + with_engine());
  EXPECT_EQ(first.status, 0) << first.out << first.err;
  const Ran second = run_lockstep(words + " --count 5 --resume" + with_engine());
  EXPECT_EQ(second.status, 0) << second.out << second.err;
  EXPECT_NE(second.out.find("5 cases, 5 held"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("2 run in"), std::string::npos) << second.out;
  const Ran other = run_lockstep(words + " --count 5 --resume" + with_engine(kFault));
  EXPECT_EQ(other.status, 2) << other.out << other.err;
}

// Numbers from 1,000,000,000 on are those of crossed cases, and half of a campaign's are.
TEST_F(EngineCommands, ACrossedCaseHasANumberOfItsOwn) {
  const std::string words = "fuzz --quiet --seed 3 --relation R15" + with_engine() + " --log ";
  const Ran one = run_lockstep(words + (folder_ / "one") + " --case 1000000003");
  EXPECT_EQ(one.status, 0) << one.out << one.err;
  const std::string log = slurp(folder_ / "one");
  EXPECT_NE(log.find("\"index\":1000000003"), std::string::npos) << log;
  EXPECT_NE(log.find("\"crossed-3\""), std::string::npos) << log;
  const Ran several = run_lockstep(words + (folder_ / "several") + " --count 8");
  EXPECT_EQ(several.status, 0) << several.out << several.err;
  const std::string all = slurp(folder_ / "several");
  EXPECT_NE(all.find("\"index\":1000000003"), std::string::npos) << all;
  EXPECT_NE(all.find("\"index\":3,"), std::string::npos) << all;
}

// Case 14 would offload tensors that its other parts make smaller than min_bytes.
TEST_F(EngineCommands, ACrossedCaseAsksNothingInVain) {
  const std::string log = folder_ / "log";
  const Ran one = run_lockstep("fuzz --quiet --seed 9100 --relation R15 --log " + log +
                               " --case 1000000014" + with_engine());
  EXPECT_EQ(one.status, 0) << one.out << one.err;
  EXPECT_EQ(slurp(log).find("crossed-14"), std::string::npos) << slurp(log);
}

TEST_F(EngineCommands, AFailureShrinksToTwoDocuments) {
  const std::string small = folder_ / "small.yaml";
  const Ran shrink =
      run_lockstep("shrink " + scenario("offload") + " --quiet --relation R7 --budget 600 -o " +
                   small + with_engine(kFault));
  EXPECT_EQ(shrink.status, 0) << shrink.out << shrink.err;
  const ReadResult read = read_scenario_file(small);
  ASSERT_TRUE(read.ok()) << slurp(small);
  EXPECT_EQ(read.scenario.data.documents.size(), 1u);
  EXPECT_EQ(read.scenario.data.documents.at(0).size(), 1u);
  EXPECT_LE(read.scenario.data.documents.at(0).at(0).size(), 2u) << slurp(small);
  EXPECT_TRUE(read.scenario.name.starts_with("r7-")) << read.scenario.name;
  EXPECT_EQ(run_lockstep(replay_in(shrink.out)).status, 1) << shrink.out;
  EXPECT_EQ(run_lockstep("verify --quiet " + small + with_engine(kFault)).status, 1);
  EXPECT_EQ(run_lockstep("verify --quiet " + small + with_engine()).status, 0);
}

TEST_F(EngineCommands, ExpectedFailuresPassAndMustFail) {
  const auto judged = [&](const std::string& text, const std::string& fault) {
    return run_lockstep("verify --quiet " + scenario("offload") +
                        " --relation R7 --expect-failures " + folder_.file("expected.yaml", text) +
                        with_engine(fault));
  };
  const std::string entry =
      "version: 1\nexpected:\n  - relation: one-voice-document\n    issue: \"tracker#1\"\n"
      "    when: {model.pattern: \"M*-*\", training.microbatches: {min: 2}, model.hidden: [16, "
      "32], offload.modules: core_attn}\n    engine: {name: \"lock*\"}\n";
  const Ran expected = judged(entry + "    tensors: \"token_loss:*\"\n", kFault);
  EXPECT_EQ(expected.status, 0) << expected.out << expected.err;
  const Ran holds = judged(entry, "");
  EXPECT_EQ(holds.status, 1) << holds.out << holds.err;
  EXPECT_NE(holds.err.find("expected failure holds"), std::string::npos) << holds.err;
  EXPECT_EQ(judged(entry + "    tensors: \"moment1:*\"\n", kFault).status, 1);
  const std::string elsewhere =
      "version: 1\nexpected: [{relation: R7, issue: a, when: {model.hidden: {max: 8}}}]\n";
  EXPECT_EQ(judged(elsewhere, kFault).status, 1);
  EXPECT_EQ(judged(elsewhere, "").status, 0);
  for (const char* wrong :
       {"version: 2\nexpected: []\n", "version: 1\nexpected: [{relation: R99, issue: a}]\n",
        "version: 1\nexpected: [{relation: R7}]\n",
        "version: 1\nexpected: [{relation: R7, issue: "
        "a, when: {model.hiden: 3}}]\n",
        "expected: []\n", "[1, 2]\n"}) {
    EXPECT_EQ(judged(wrong, "").status, 2) << wrong;
  }
}

TEST_F(EngineCommands, DescribeSaysWhatIsHonouredAndProjected) {
  const std::string file = folder_.file("a.yaml",
                                        "schema: 1\nname: a\nparallel: {data: 6, transport: "
                                        "shm}\ncuda_graph: {impl: full_iteration}\n");
  const Ran ran =
      run_lockstep("describe " + file + " --json " + (folder_ / "d.json") + with_engine());
  EXPECT_EQ(ran.status, 0) << ran.err;
  for (const char* words :
       {"engine lockstep ", "  cuda_graph.impl: [\"none\",\"partial\"]", "deterministic: true",
        "observes token_loss, ", "projected  cuda_graph.impl: full_iteration -> none",
        "projected  parallel.data: 6 -> 4", "R2 graphs: not applicable, no graphs",
        "R6 neighbours: applies"}) {
    EXPECT_NE(ran.out.find(words), std::string::npos) << words << "\n" << ran.out;
  }
  EXPECT_EQ(report(folder_ / "d.json").at("described").as_array().size(), 1u);
}

TEST_F(EngineCommands, VerifyTakesAShareOfTheFilesAndSeveralRelations) {
  const Ran ran = run_lockstep("verify --shard 1/2 --relation R1,R8:half=odd,variant=zero,R15 " +
                               scenario("eager") + " " + scenario("offload") + with_engine());
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("1 held"), std::string::npos) << ran.out;
  for (const char* relation : {"R1 repeat", "R8 padding", "R15 counters"})
    EXPECT_NE(ran.out.find(relation), std::string::npos) << relation << "\n" << ran.out;
  EXPECT_NE(ran.out.find("3 relations"), std::string::npos) << ran.out;
}

TEST_F(EngineCommands, RefusesWhatDoesNotFitTogether) {
  for (const auto& [words, what] :
       {std::pair("verify --device sim", "--device is of lockstep's own engine"),
        std::pair("fuzz --jobs 2", "--jobs is of lockstep's own engine"),
        std::pair("fuzz --shard 0/2", "--shard is of lockstep's own engine"),
        std::pair("verify --relation R77", "there is no relation R77"),
        std::pair("verify --relation R7:half", "'half' is no choice"),
        std::pair("replay nowhere.yaml", "nowhere.yaml")}) {
    const Ran ran = run_lockstep(words + with_engine());
    EXPECT_EQ(ran.status, 2) << words;
    EXPECT_NE(ran.err.find(what), std::string::npos) << words << ": " << ran.err;
  }
  const Ran alone = run_lockstep("verify --relation R7");
  EXPECT_EQ(alone.status, 2);
  EXPECT_NE(alone.err.find("--relation needs --engine"), std::string::npos) << alone.err;
  const Ran absent = run_lockstep("verify --engine /nowhere/engine");
  EXPECT_EQ(absent.status, 3) << absent.err;
}

}  // namespace
}  // namespace lockstep
