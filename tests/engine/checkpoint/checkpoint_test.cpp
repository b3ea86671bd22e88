#include "engine/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "state.safetensors"; }
  static Checkpoint sample(float first) {
    return {{{"steps_done", "7"}},
            {{"weight/a", {2, 3}, {first, 2, 3, 4, 5, -0.0f}}, {"m/a", {1, 2}, {1e-40f, 8}}}};
  }
  std::string bytes() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& text) const { std::ofstream(path(), std::ios::binary) << text; }
  const TemporaryFolder folder_;
};

TEST_F(CheckpointTest, ReadsBackWhatWasWritten) {
  write_checkpoint(path(), sample(1));
  const Checkpoint back = read_checkpoint(path());
  EXPECT_EQ(back.metadata.at("steps_done"), "7");
  ASSERT_EQ(back.tensors.size(), 2u);
  EXPECT_EQ(back.tensors[0].name, "weight/a");
  EXPECT_EQ(back.tensors[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(std::signbit(back.tensors[0].values[5]));
  EXPECT_EQ(back.tensors[1].values[0], 1e-40f);
}

TEST_F(CheckpointTest, RefusesAFileCutAnywhere) {
  write_checkpoint(path(), sample(1));
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    EXPECT_THROW(read_checkpoint(path()), std::runtime_error)
        << size << " of " << whole.size() << " bytes";
  }
}

TEST_F(CheckpointTest, RefusesAFileWithAnyByteOfItsDataChanged) {
  write_checkpoint(path(), sample(1));
  const std::string whole = bytes();
  for (std::size_t at = whole.size() - 8 * sizeof(float); at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(damaged);
    EXPECT_THROW(read_checkpoint(path()), std::runtime_error) << "byte " << at;
  }
}

TEST_F(CheckpointTest, RefusesAFileWhoseMetadataWasChanged) {
  write_checkpoint(path(), sample(1));
  std::string altered = bytes();
  const std::size_t at = altered.find("\"7\"");
  ASSERT_NE(at, std::string::npos);
  altered[at + 1] = '8';
  write(altered);
  EXPECT_THROW(read_checkpoint(path()), std::runtime_error);
}

TEST_F(CheckpointTest, KeepsTheOldFileWhenANewOneCannotBeWritten) {
  write_checkpoint(path(), sample(1));
  // A folder in the place of the file.
  const std::string other = folder_ / "taken";
  fs::create_directories(other + "/inside");
  EXPECT_THROW(write_checkpoint(other, sample(2)), std::runtime_error);
  EXPECT_THROW(write_checkpoint(folder_ / "missing/x", sample(2)), std::runtime_error);
  EXPECT_THROW(write_checkpoint("/dev/null", sample(2)), std::runtime_error);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(read_checkpoint(path()).tensors[0].values[0], 1);
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos)
        << "left behind: " << entry.path();
  }
}

TEST_F(CheckpointTest, RemovesWhatADeadWriterOfItLeft) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);  // From here on nobody has this number.
  const std::string number = ".tmp." + std::to_string(child), dead = number + ".0123456789abcdef",
                    living = number + ".00000000000000ff";
  const std::vector<std::string> stay{path() + living,     path() + ".tmp.notes",
                                      path() + ".tmp.",    path() + number,
                                      path() + dead + "0", (folder_ / "other") + dead};
  for (const std::string& file : stay) std::ofstream(file) << "torn";
  std::ofstream(path() + dead) << "torn";
  const int held = ::open((path() + living).c_str(), O_RDONLY);  // As its writer holds it.
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  write_checkpoint(path(), sample(1));
  ::close(held);
  EXPECT_FALSE(fs::exists(path() + dead));
  for (const std::string& file : stay) EXPECT_TRUE(fs::exists(file)) << file;
}

TEST_F(CheckpointTest, HasTheLayoutOfSafetensors) {
  write_checkpoint(path(), sample(1));
  const std::string whole = bytes();
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(whole[static_cast<std::size_t>(i)]);
  EXPECT_EQ(whole[8], '{');
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(whole.size(), 8 + length + 8 * sizeof(float));
}

}  // namespace
}  // namespace lockstep
