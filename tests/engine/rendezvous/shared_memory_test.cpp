// What lies where processes of one machine meet is used, replaced or removed only if it is a
// segment that this user's lockstep made.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/rendezvous/shared_memory_store.h"
#include "tests/engine/comm/processes.h"
#include "tests/support/program.h"

namespace lockstep::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr double kSoon = 0.1;
constexpr const char* kHang = " found no place to join at ";

// Why a rank does not join; "" if it does.
std::string join(const SharedPlace& place, int rank, int ranks = 2) {
  try {
    const SharedMemoryStore store(place, rank, ranks, kSoon);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::vector<std::string> files_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST(SharedMemory, IsAFreshSegmentWhereAnOlderOneLies) {
  const TemporaryFolder folder;
  const SharedPlace place{folder / "ranks"};
  std::optional<SharedSegment> older(SharedMemoryStore::create(place, 2));
  const SharedMemoryStore before(place, 0, 2, kSoon);
  EXPECT_THAT(join(place, 0), HasSubstr(kHang));  // Taken.
  EXPECT_THAT(join(place, 1, 3), HasSubstr(kHang));
  EXPECT_THAT(join({folder / "none"}, 0), HasSubstr(kHang));
  const SharedSegment newer = SharedMemoryStore::create(place, 2);
  older.reset();  // It leaves the newer one in its place.
  EXPECT_EQ(join(place, 0), "");
}

TEST(SharedMemory, IsGoneWithItsMaker) {
  const TemporaryFolder folder;
  static_cast<void>(SharedMemoryStore::create({folder / "ranks"}, 2));
  EXPECT_TRUE(files_in(folder).empty());
}

// Each of these was read or written beyond its end, or was joined though others could write to it.
TEST(SharedMemory, HasItsSizeKindOwnerAndMode) {
  const TemporaryFolder folder;
  const SharedPlace place{folder / "ranks"};
  const SharedSegment segment = SharedMemoryStore::create(place, 2);
  const std::string header = slurp(place.path).substr(0, 8);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4196}}) {
    const std::string path =
        folder.file("short" + std::to_string(bytes), header + std::string(bytes - 8, '\0'));
    ::chmod(path.c_str(), 0600);
    EXPECT_THAT(join({path}, 1), HasSubstr(path + " has " + std::to_string(bytes) +
                                           " bytes, and a segment of 2 ranks has "));
  }
  const std::string text = folder.file("text", "words words");
  ::chmod(text.c_str(), 0600);
  EXPECT_THAT(join({text}, 0), EndsWith(": not a segment of this version"));
  const std::string link = folder / "link", fifo = folder / "fifo";
  EXPECT_EQ(::symlink(place.path.c_str(), link.c_str()), 0);
  EXPECT_EQ(join({link}, 0), link + " is a link");
  EXPECT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(join({fifo}, 0), fifo + " is no regular file");
  ::chmod(place.path.c_str(), 0660);
  EXPECT_EQ(join(place, 0), place.path + " is open to other users");
  ::chmod(place.path.c_str(), 0600);
  if (::geteuid() == 0) {  // Who is not root can give a file to nobody.
    EXPECT_EQ(::chown(place.path.c_str(), 65534, 65534), 0);
    EXPECT_EQ(join(place, 0), place.path + " belongs to another user");
    EXPECT_EQ(::chown(place.path.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(join(place, 0), "");
}

TEST(SharedMemory, ReplacesNothingThatItDidNotMake) {
  const TemporaryFolder folder;
  const std::string text = folder.file("keep", "precious"), link = folder / "link";
  EXPECT_EQ(::symlink(text.c_str(), link.c_str()), 0);
  for (const std::string& path : {text, link, folder.path()}) {
    EXPECT_THROW(static_cast<void>(SharedMemoryStore::create({path}, 2)), PlaceIsTaken) << path;
  }
  EXPECT_EQ(slurp(text), "precious");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

// ---- Of a job -----------------------------------------------------------------------------------

SharedPlace place_in(const TemporaryFolder& folder, const std::string& job) {
  return {.path = folder / ("own-" + job), .family = folder / "own-"};
}

TEST(SharedMemoryOfAJob, IsFoundAmongThoseOfOthers) {
  const TemporaryFolder folder;
  const SharedPlace place = place_in(folder, "a");
  const SharedSegment other = SharedMemoryStore::create(place_in(folder, "a.b"), 2);
  EXPECT_THAT(join(place, 0), HasSubstr(kHang));
  // Names that somebody could think of, and one that somebody saw.
  for (const char* name : {"own-a", "own-a.0123456789abcdef", "own-a.new"})
    static_cast<void>(folder.file(name, "squatted"));
  const SharedSegment segment = SharedMemoryStore::create(place, 2);
  EXPECT_EQ(join(place, 0), "");
  EXPECT_EQ(slurp(folder / "own-a"), "squatted");
  EXPECT_EQ(slurp(folder / "own-a.0123456789abcdef"), "squatted");
}

// Its maker was killed between making the file and writing its header.
TEST(SharedMemoryOfAJob, IsRemovedAtTheNextStartEvenWithoutAHeader) {
  const TemporaryFolder folder;
  const std::string early = folder / "own-c.0123456789abcdef",
                    held = folder / "own-c.00000000000000ff";
  const int left = ::open(early.c_str(), O_RDWR | O_CREAT, 0600);
  const int of_a_maker = ::open(held.c_str(), O_RDWR | O_CREAT, 0600);
  ::close(left);
  ASSERT_EQ(::flock(of_a_maker, LOCK_EX), 0);
  const SharedSegment segment = SharedMemoryStore::create(place_in(folder, "a"), 2);
  EXPECT_FALSE(std::filesystem::exists(early));
  EXPECT_TRUE(std::filesystem::exists(held));
  ::close(of_a_maker);
}

TEST(SharedMemoryOfAJob, HasAnotherNameEachTime) {
  const TemporaryFolder folder;
  const SharedPlace place = place_in(folder, "a");
  const SharedSegment one = SharedMemoryStore::create(place, 2);
  const std::string first = files_in(folder).front();
  EXPECT_THAT(first, testing::MatchesRegex("own-a\\.[0-9a-f]{16}"));
  const SharedSegment two = SharedMemoryStore::create(place, 2);
  EXPECT_EQ(files_in(folder).size(), 2u);
}

// A segment whose maker was killed: nobody joins it, and the next start of any job removes it.
TEST(SharedMemoryOfAJob, IsRemovedAtTheNextStart) {
  const TemporaryFolder folder;
  const SharedPlace place = place_in(folder, "a");
  Processes gone(1, [&](int) -> int {
    const SharedSegment segment = SharedMemoryStore::create(place, 2);
    ::_exit(7);
  });
  EXPECT_EQ(gone.wait(0).status, 7);
  const std::vector<std::string> left = files_in(folder);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_THAT(join(place, 0), HasSubstr(kHang));
  const SharedSegment running = SharedMemoryStore::create(place_in(folder, "b"), 2);
  EXPECT_FALSE(std::filesystem::exists(folder / left.front()));
  const SharedSegment next = SharedMemoryStore::create(place_in(folder, "c"), 2);
  EXPECT_EQ(files_in(folder).size(), 2u);  // The one that runs stays.
}

}  // namespace
}  // namespace lockstep::test
