// Rule Y08: files of documents and histograms that a scenario names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Y08 : public testing::Test {
 protected:
  // Reads a scenario in the folder whose data section is `data`.
  std::string rules(const std::string& data) {
    return reading_rules(text(data), folder_ / "s.yaml");
  }
  std::string error(const std::string& data) {
    return reading_error(text(data), folder_ / "s.yaml");
  }

  TemporaryFolder folder_;

 private:
  static std::string text(const std::string& data) { return with_head("data: {" + data + "}\n"); }
};

TEST_F(Y08, RefusesPathsThatAreMissingOrOfTheWrongSort) {
  folder_.file("file", "x");
  folder_.file("folder/file", "x");
  EXPECT_EQ(rules("kind: text"), "Y08");
  EXPECT_EQ(rules("kind: text, path: file"), "Y08");
  EXPECT_EQ(rules("kind: jsonl, path: folder"), "Y08");
  EXPECT_EQ(rules("kind: jsonl, path: missing"), "Y08");
  EXPECT_EQ(rules("kind: text, path: folder"), "");
  EXPECT_EQ(rules("kind: lengths, path: missing"), "");
  EXPECT_THAT(error("kind: text, path: missing"), HasSubstr("s.yaml:3:26: data.path: "));
  EXPECT_THAT(error("kind: text, path: missing"), HasSubstr("missing: does not exist [Y08]"));
}

TEST_F(Y08, RefusesAFolderWithoutDocuments) {
  std::filesystem::create_directories(folder_ / "empty/inside");
  std::filesystem::create_symlink(folder_ / "file", folder_ / "empty/link");
  folder_.file("file", "x");
  EXPECT_EQ(rules("kind: text, path: empty"), "Y08");
  folder_.file("none.jsonl", "");
  EXPECT_EQ(rules("kind: jsonl, path: none.jsonl"), "Y08");
  folder_.file("empty/inside/a", "");
  EXPECT_EQ(rules("kind: text, path: empty"), "");  // An empty file is an empty document.
}

TEST_F(Y08, RefusesNulBytes) {
  folder_.file("texts/a", "fine");
  folder_.file("texts/b", std::string("one\ntwo\0three", 13));
  folder_.file("a.jsonl", std::string("{\"text\": \"a\"}\n{\"text\": \"\0\"}\n", 27));
  EXPECT_THAT(error("kind: text, path: texts"), HasSubstr("texts/b:2: has a NUL byte [Y08]"));
  EXPECT_THAT(error("kind: jsonl, path: a.jsonl"), HasSubstr("a.jsonl:2: has a NUL byte [Y08]"));
}

TEST_F(Y08, RefusesBadRecords) {
  folder_.file("a.jsonl",
               "{\"text\": \"fine\"}\n"
               "{\"text\": 3}\n"
               "{\"text\": \"open\n"
               "[]\n"
               "\n"
               "{\"other\": 1}\n"
               "{\"messages\": {}}\n"
               "{\"messages\": [{\"role\": \"user\"}]}\n"
               "{\"text\": \"a\", \"messages\": []}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n"
               "{\"text\": \"\xff\"}");
  const std::string all = error("kind: jsonl, path: a.jsonl");
  EXPECT_EQ(rules("kind: jsonl, path: a.jsonl"), "Y08 Y08 Y08 Y08 Y08 Y08 Y08 Y08 Y08");
  for (const char* line : {":2:", ":3:", ":4:", ":5:", ":6:", ":7:", ":8:", ":9:", ":11:"}) {
    EXPECT_THAT(all, HasSubstr("a.jsonl" + std::string(line)));
  }
}

// The pairs take the file's place, so that a canonical form, and with it a token, needs no file.
TEST_F(Y08, AHistogramIsReadFromItsFile) {
  folder_.file("packs.txt", "# documents packs\n7, 2\n3 1\n9 0\n7;1\n");
  const std::string head = "kind: distribution, distribution: {shape: histogram";
  const ReadResult read =
      read_scenario_text(with_head("data: {" + head + "}, path: packs.txt}"), folder_ / "s.yaml");
  ASSERT_TRUE(read.ok()) << read.errors.front().text();
  EXPECT_EQ(canonical_form(read.scenario),
            canonical_form(read_scenario_text(
                               with_head("data: {" + head + ", histogram: [[3, 1], [7, 3]]}}"), "t")
                               .scenario));
  EXPECT_EQ(rules(head + ", histogram: [[3, 1]]}, path: packs.txt"), "Y08");
  EXPECT_EQ(rules(head + "}, path: missing.txt"), "Y08");
  EXPECT_EQ(rules(head + "}, path: folder"), "Y08");
  EXPECT_EQ(rules(head + "}, path: packs.txt, digest: 900150983cd24fb0d6963f7d28e17f72"), "Y08");
  folder_.file("packs.txt", "7 2\nseven 2\n");
  EXPECT_THAT(error(head + "}, path: packs.txt"),
              HasSubstr("packs.txt:2: two numbers, documents and packs [Y08]"));
  folder_.file("packs.txt", std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(error(head + "}, path: packs.txt"), HasSubstr("is larger than 1 MiB"));
}

TEST_F(Y08, RefusesOtherBytesThanTheDigestSays) {
  folder_.file("a.jsonl", "{\"text\": \"a\"}\n");
  const std::string digest = "900150983cd24fb0d6963f7d28e17f72";  // For other bytes.
  EXPECT_EQ(rules("kind: jsonl, path: a.jsonl, digest: " + digest), "Y08");
  const std::string complaint = error("kind: jsonl, path: a.jsonl, digest: " + digest);
  const std::string right = complaint.substr(complaint.rfind(' ') + 1);
  EXPECT_EQ(rules("kind: jsonl, path: a.jsonl, digest: \"" + right + "\""), "");
  folder_.file("a.jsonl", "{\"text\": \"b\"}\n");
  EXPECT_EQ(rules("kind: jsonl, path: a.jsonl, digest: \"" + right + "\""), "Y08");
}

}  // namespace
}  // namespace lockstep
