#include "harness/base/removed_at_exit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RemovedAtExitTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
};

TEST_F(RemovedAtExitTest, TakesAFolderWithAllThatIsInIt) {
  fs::create_directory(folder_ / "run");
  folder_.file("run/segment", "posts");
  std::optional<RemovedAtExit> removed(folder_ / "run");
  removed.reset();
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

// The first file is held open, as a segment is: otherwise the next one may get its number.
TEST_F(RemovedAtExitTest, LeavesWhatAnotherProcessPutInItsPlace) {
  const std::string path = folder_.file("segment", "of this run");
  const int held = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(held, 0);
  std::optional<RemovedAtExit> removed(path);
  fs::remove(path);
  folder_.file("segment", "of the next run");
  RemovedAtExit::remove_now();
  EXPECT_EQ(slurp(path), "of the next run");
  removed.reset();
  EXPECT_EQ(slurp(path), "of the next run");
  ::close(held);
}

TEST_F(RemovedAtExitTest, LeavesALinkThatWasPutInItsPlaceAndWhatItLeadsTo) {
  const std::string precious = folder_.file("precious", "of the user");
  fs::create_directory(folder_ / "run");
  const int held = ::open((folder_ / "run").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(held, 0);
  std::optional<RemovedAtExit> removed(folder_ / "run");
  fs::remove(folder_ / "run");
  fs::create_symlink(precious, folder_ / "run");
  removed.reset();
  EXPECT_TRUE(fs::is_symlink(folder_ / "run"));
  EXPECT_EQ(slurp(precious), "of the user");
  ::close(held);
}

TEST_F(RemovedAtExitTest, AChildProcessLeavesWhatItsParentMade) {
  const std::string path = folder_.file("segment", "of the parent");
  std::optional<RemovedAtExit> removed(path);
  const pid_t child = ::fork();
  if (child == 0) {
    RemovedAtExit::remove_now();
    removed.reset();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(fs::exists(path));
}

}  // namespace
}  // namespace lockstep
