// Checkpoints that no run has written: whoever sends one must not have files removed, memory used
// up or a run continued from values that are not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/run_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class HostileCheckpoint : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "state"; }
  std::string file(const std::string& suffix) const { return path() + suffix; }

  static const Metadata& identity() {
    static const Metadata run{{"run", "7"}, {"seed", "1"}};
    return run;
  }
  static Metadata index(const std::string& set, const std::string& ranks) {
    Metadata metadata = identity();
    metadata["set"] = set;
    metadata["ranks"] = ranks;
    return metadata;
  }
  static TensorShard wanted() { return {"w", 1, 4, 0, true, std::vector<float>(4)}; }

  // Why it is refused; "" if it is read.
  std::string refusal() const {
    try {
      read_run(path(), identity(), [](const Metadata&) { return std::vector{wanted()}; });
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
  // A header as it stands, with as many bytes of data; the checksum is never reached.
  void write_header(const std::string& json, std::size_t data) const {
    std::string text(8, '\0');
    for (int i = 0; i < 8; ++i)
      text[static_cast<std::size_t>(i)] = static_cast<char>(json.size() >> (8 * i));
    std::ofstream(path(), std::ios::binary) << text << json << std::string(data, '\1');
  }
  void save() const {
    write_run(path(), identity(), {identity(), {{"w", 1, 4, 0, true, {1, 2, 3, 4}}}}, nullptr);
  }
  // As rank 0 of two ranks that have the same, which replaces whatever checkpoint was there.
  void save_over() const;
  const TemporaryFolder folder_;
};

// Says it is one of two, and waits for nobody.
class SingleRank : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void barrier() override {}
  void all_gather(const Stream&, const CollectiveName&, void*, const void*, std::size_t) override {}
  void all_to_all(const Stream&, const CollectiveName&, void*, const void*, std::size_t) override {}
  std::vector<std::string> all_gather_object(const std::string&) override { return {}; }
};

void HostileCheckpoint::save_over() const {
  SingleRank alone;
  write_run(path(), identity(), {identity(), {{"w", 1, 4, 0, true, {1, 2, 3, 4}}}}, &alone);
}

TEST_F(HostileCheckpoint, AnIndexNamesNoFileOfAnotherName) {
  const std::string victim = folder_ / "VICTIM";
  std::ofstream(victim) << "precious";
  fs::create_directory(path() + ".");
  std::string set = "/../";
  for (int i = 0; i < 18; ++i) set += "./";
  write_checkpoint(path(), {index(set + "VICTIM", "1"), {}});
  EXPECT_THAT(refusal(), HasSubstr("not an index of a checkpoint: its set is neither a nor b"));
  save_over();
  EXPECT_TRUE(fs::exists(victim));
}

TEST_F(HostileCheckpoint, RemovesOnlyFilesOfThisRun) {
  const std::string of_another = file(".a.rank-0000-of-0003"), text = file(".a.rank-0001-of-0003"),
                    own = file(".a.rank-0002-of-0003");
  write_checkpoint(of_another, {{{"run", "8"}, {"seed", "1"}}, {}});
  std::ofstream(text) << "precious";
  write_checkpoint(own, {identity(), {}});
  write_checkpoint(path(), {index("a", "3"), {}});
  save_over();
  EXPECT_TRUE(fs::exists(of_another));
  EXPECT_TRUE(fs::exists(text));
  EXPECT_FALSE(fs::exists(own));

  // An index of another run speaks for nothing of this one.
  write_checkpoint(own, {identity(), {}});
  Metadata other = index("a", "3");
  other["run"] = "8";
  write_checkpoint(path(), {other, {}});
  save_over();
  EXPECT_TRUE(fs::exists(own));
}

TEST_F(HostileCheckpoint, RefusesMoreRanksThanARunHas) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* ranks : {"2147483647", "65", "0", "-1", "01", "x", ""}) {
    write_checkpoint(path(), {index("a", ranks), {}});
    EXPECT_THAT(refusal(), HasSubstr("not an index of a checkpoint: ranks is")) << ranks;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(HostileCheckpoint, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("is not a regular file"));
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_THAT(refusal(), HasSubstr("is not a regular file"));
  fs::remove(path());
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  write_checkpoint(file("-real"), {identity(), {}});
  fs::create_symlink(file("-real"), path());
  EXPECT_THAT(refusal(), HasSubstr("is a symbolic link"));
  EXPECT_THROW(read_checkpoint("/dev/zero"), std::runtime_error);

  // The rank files that an index names, too.
  fs::remove(path());
  write_checkpoint(path(), {index("a", "1"), {}});
  fs::create_symlink(file("-real"), file(".a.rank-0000-of-0001"));
  EXPECT_THAT(refusal(), HasSubstr("is a symbolic link"));
}

// Nothing as large as the file is ever held.
TEST_F(HostileCheckpoint, RefusesAnEnormousFileByItsHeader) {
  std::ofstream(path()) << "";
  fs::resize_file(path(), 20'000'000'000);
  EXPECT_THAT(refusal(), HasSubstr("not a checkpoint"));
  std::ofstream(path(), std::ios::binary) << std::string("\xff\xff\xff\xff\1\0\0\0", 8);
  fs::resize_file(path(), 20'000'000'000);
  EXPECT_THAT(refusal(), HasSubstr("its header exceeds 100 MB"));
}

TEST_F(HostileCheckpoint, RefusesPartsThatDoNotCoverATensorOnce) {
  const auto stored = [](const std::string& name, std::size_t count) {
    return StoredTensor{name, {static_cast<std::int64_t>(count)}, std::vector<float>(count, 1)};
  };
  const StoredTensor whole{"w", {1, 4}, {1, 2, 3, 4}};
  for (const std::vector<StoredTensor>& parts :
       std::vector<std::vector<StoredTensor>>{{stored("w@0", 2), stored("w@00", 2)},
                                              {stored("w@0", 2), stored("w@0x", 2)},
                                              {stored("w@0", 2), stored("w@-2", 2)},
                                              {stored("w@0", 2), stored("w@1", 2)},
                                              {stored("w@0", 2), stored("w@3", 1)},
                                              {stored("w@0", 2), stored("w@2", 3)},
                                              {stored("w@0", 4), whole},
                                              {stored("w@9223372036854775807", 4)},
                                              {stored("w", 4)},
                                              {stored("w@0", 3)},
                                              {}}) {
    write_checkpoint(path(), {identity(), parts});
    EXPECT_NE(refusal(), "") << (parts.empty() ? "nothing" : parts.back().name);
  }
  write_checkpoint(path(), {identity(), {stored("w@2", 2), stored("w@0", 2)}});
  EXPECT_EQ(refusal(), "");
  save();
  EXPECT_EQ(refusal(), "");
}

TEST_F(HostileCheckpoint, RefusesTensorsThatOverlapLeaveHolesOrWrap) {
  const auto tensor = [](const char* name, const char* shape, const char* offsets) {
    return "\"" + std::string(name) + R"(":{"dtype":"F32","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  write_header("{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[2]", "[0,8]") + "}", 8);
  EXPECT_THAT(refusal(), HasSubstr("there is an overlap before tensor b"));
  write_header("{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[1]", "[12,16]") + "}", 16);
  EXPECT_THAT(refusal(), HasSubstr("there is a hole before tensor b"));
  write_header("{" + tensor("a", "[2]", "[0,8]") + "}", 12);
  EXPECT_THAT(refusal(), HasSubstr("its tensors do not end where the file does"));
  for (const char* shape : {"[4611686018427387904]", "[2147483648,2147483648,4]", "[-2]",
                            "[4611686018427389952,2]", "[1,1,1,1,1,1,1,1,2]"}) {
    write_header("{" + tensor("a", shape, "[0,8]") + "}", 8);
    EXPECT_THAT(refusal(), testing::AnyOf(HasSubstr("tensor a has"), HasSubstr("not a checkpoint")))
        << shape;
  }
}

}  // namespace
}  // namespace lockstep
