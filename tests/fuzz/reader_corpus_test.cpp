// Replays what the fuzzer found, and the library, through the plain build: the claims of
// reader_claims.h.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/fuzz/reader_claims.h"
#include "tests/scenarios/reading.h"
#include "tests/support/tree.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Every file in this folder, with what texts of data it may name.
class ReaderCorpus : public testing::Test {
 protected:
  ReaderCorpus() : before_(fs::current_path()) {
    folder_.file("documents/a.txt", "A text.\n");
    folder_.file("records.jsonl", "{\"text\": \"A record.\"}\n");
    fs::current_path(folder_.path());
  }
  ~ReaderCorpus() override { fs::current_path(before_); }

  static void replay(const fs::path& file) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(refuted_claim(bytes_of(file)), "") << file;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 5.0) << file << " hangs";  // A thousand times what the slowest takes.
  }

 private:
  TemporaryFolder folder_;
  fs::path before_;
};

TEST_F(ReaderCorpus, HoldsEveryClaim) {
  const std::vector<fs::path> files = files_below(root_path() + "/tests/fuzz/corpus");
  ASSERT_GE(files.size(), 20u);
  for (const fs::path& file : files) replay(file);
}

TEST_F(ReaderCorpus, LibraryHoldsEveryClaim) {
  std::size_t count = 0;
  for (const fs::path& file : files_below(root_path() + "/scenarios/library")) {
    if (file.extension() != ".yaml") continue;
    replay(file);
    ++count;
  }
  ASSERT_GE(count, 40u);
}

// The claims must be able to fail: a canonical form that was changed is found.
TEST_F(ReaderCorpus, ClaimsNoticeAnotherScenario) {
  const ReadStage stage = read_stage(with_head("model: {hidden: 64}\n"), "file.yaml");
  ASSERT_TRUE(stage.errors.empty());
  EXPECT_NE(reads_back(stage.scenario, with_head("model: {hidden: 96}\n"), "it"), "");
  EXPECT_NE(reads_back(stage.scenario, "schema: 2", "it"), "");
  EXPECT_EQ(reads_back(stage.scenario, with_head("model: {hidden: 64}\n"), "it"), "");
}

}  // namespace
}  // namespace lockstep
