// A merged corpus meets what the corpora meet, with no file that could be left out.
#include "harness/campaign/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/base/errors.h"
#include "harness/campaign/corpus.h"
#include "harness/generate/case.h"
#include "harness/generate/features.h"
#include "harness/run/library.h"
#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using Items = std::set<std::pair<std::size_t, std::size_t>>;

// The pairs of features of a file, a feature being the pair with itself.
Items met_by(const std::string& path) {
  const ReadResult read = read_scenario_file(path);
  EXPECT_TRUE(read.ok()) << path;
  const Traits traits = features_of(read.scenario);
  Items items;
  for (std::size_t a = 0; a < trait_names().size(); ++a) {
    for (std::size_t b = a; b < trait_names().size(); ++b) {
      const bool rare = trait_names()[a].rare || trait_names()[b].rare;
      if (traits[a] && traits[b] && (a == b || !rare)) items.insert({a, b});
    }
  }
  return items;
}

Items met_by_all(const std::vector<std::string>& files) {
  Items all;
  for (const std::string& file : files) all.merge(met_by(file));
  return all;
}

// The files of which everything is met by another one too.
std::vector<std::string> superfluous(const std::vector<std::string>& files) {
  std::map<std::pair<std::size_t, std::size_t>, int> count;
  for (const std::string& file : files) {
    for (const auto& item : met_by(file)) ++count[item];
  }
  std::vector<std::string> list;
  for (const std::string& file : files) {
    const Items items = met_by(file);
    if (std::ranges::all_of(items, [&](const auto& item) { return count[item] > 1; }))
      list.push_back(file);
  }
  return list;
}

// Random scenarios begin..end, a file each.
void draw(const TemporaryFolder& folder, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const CampaignCase one = make_case(3, i, "small");
    if (!one.invalid) folder.file("case-" + std::to_string(i) + ".yaml", to_yaml(one.scenario));
  }
}

TEST(Merge, MeetsAllThatTheFoldersMeetAndNoFileIsSuperfluous) {
  const TemporaryFolder a, b, out;
  draw(a, 0, 120);
  draw(b, 120, 240);
  std::vector<std::string> all = scenario_files(a.path()), of_b = scenario_files(b.path());
  all.insert(all.end(), of_b.begin(), of_b.end());
  const MergeReport report = merge_corpora(out.path(), {a.path(), b.path()});
  const std::vector<std::string> kept = scenario_files(out.path());
  EXPECT_EQ(report.read, all.size());
  EXPECT_EQ(report.added.size(), kept.size());
  EXPECT_LT(kept.size(), all.size());
  const Items wanted = met_by_all(all);
  EXPECT_EQ(met_by_all(kept), wanted);
  EXPECT_EQ(report.features + report.pairs, wanted.size());
  EXPECT_THAT(superfluous(kept), testing::IsEmpty());
  // Once more it adds nothing, and the same folders give the same corpus.
  EXPECT_THAT(merge_corpora(out.path(), {a.path(), b.path()}).added, testing::IsEmpty());
  const TemporaryFolder again;
  EXPECT_EQ(merge_corpora(again.path(), {a.path(), b.path()}).added, report.added);
}

TEST(Merge, KeepsWhatTheCorpusHasAndAddsOnlyWhatIsNew) {
  const TemporaryFolder from, out;
  draw(from, 0, 20);
  draw(out, 0, 20);
  out.file("mine.yaml", to_yaml(make_case(3, 0, "small").scenario));
  const auto before = scenario_files(out.path());
  EXPECT_THAT(merge_corpora(out.path(), {from.path()}).added, testing::IsEmpty());
  EXPECT_EQ(scenario_files(out.path()), before);
}

TEST(Merge, KeepsOneFileOfEachClassOfFailuresAndOfEachRule) {
  const TemporaryFolder a, b, out;
  const std::string text = "schema: 1\nname: plain\n", one = Corpus::file_of("gradient / linear"),
                    two = Corpus::file_of("gradient / conv"),
                    refused = "refused/L17-" + Corpus::file_of("refusal");
  ASSERT_NE(one, two);
  for (const std::string& name : {one, two}) {
    a.file(name, "# of the first night\n" + text);
    b.file(name, text + "training: {steps: 3}\n");
  }
  const std::string illegal =
      "schema: 1\nname: x\nnumerics: [fp32]\nexpect: {verdict: refused, error: Y03}\nzebra: 1\n";
  b.file(refused, illegal);
  b.file("refused/y03-zebra.yaml", illegal);
  b.file("refused/y03-zebra-too.yaml", illegal);
  const MergeReport report = merge_corpora(out.path(), {a.path(), b.path()});
  EXPECT_EQ(report.classes, 4u);
  EXPECT_THAT(report.added,
              testing::UnorderedElementsAre(one, two, refused, testing::StartsWith("refused/y03")));
  EXPECT_THAT(slurp(out / one), testing::StartsWith("# of the first night\n"));
}

TEST(Merge, WritesNothingWhereAFileIsNoScenario) {
  const TemporaryFolder from, out;
  draw(from, 0, 4);
  from.file("wrong.yaml", "schema: 1\nname: x\nmodel: {hiden: 3}\n");
  EXPECT_THROW(merge_corpora(out.path(), {from.path()}), RequestError);
  EXPECT_THAT(scenario_files(out.path()), testing::IsEmpty());
}

TEST(Merge, AFileStillFindsItsDocuments) {
  const TemporaryFolder from, out;
  from.file("docs/a.txt", "some documents");
  from.file("text.yaml",
            "# ours\nschema: 1\nname: text\nmodel: {vocab: 256}\ndata: {kind: text, path: docs}\n");
  EXPECT_THAT(merge_corpora(out.path(), {from.path()}).added, testing::ElementsAre("text.yaml"));
  const ReadResult read = read_scenario_file(out / "text.yaml");
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.errors.front().text());
  EXPECT_THAT(slurp(out / "text.yaml"), testing::StartsWith("# ours\n"));
}

TEST(MergeCommand, RunsNothingAndSaysWhatItTakes) {
  const TemporaryFolder from, out;
  draw(from, 0, 30);
  const std::string merge = "fuzz --merge " + from.path() + " --corpus " + (out / "corpus");
  const Ran ran = run_lockstep(merge + " --json " + (out / "merged.json"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, testing::ContainsRegex("[0-9]+ of [0-9]+ added; together they meet [0-9]+ "
                                              "features, [0-9]+ pairs of them"));
  EXPECT_THAT(slurp(out / "merged.json"), testing::HasSubstr("\"added\":[\"case-"));
  EXPECT_EQ(run_lockstep(merge + " --seed 3").status, 2);
  EXPECT_EQ(run_lockstep("fuzz --merge " + from.path()).status, 2);
  EXPECT_EQ(run_lockstep("fuzz --merge --corpus " + (out / "corpus")).status, 2);
  EXPECT_EQ(run_lockstep("fuzz " + from.path()).status, 2);
  const Ran nowhere =
      run_lockstep("fuzz --merge " + (from / "nowhere") + " --corpus " + (out / "corpus"));
  EXPECT_EQ(nowhere.status, 2) << nowhere.err;
}

}  // namespace
}  // namespace lockstep
