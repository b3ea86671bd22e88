// libFuzzer's entry: whatever lies where a checkpoint is read, a rank's file or an index of
// several, reading it fills what was asked for or ends with a sentence, and saving over it removes
// no file that is none of this run's. An input is the bytes of up to three files, or words of which
// files with right checksums are made, because damaged ones end at their checksum.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/run_checkpoint.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Takes numbers and words from the front of an input; 0 and "" when nothing is left.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t first = left_.front();
    left_ = left_.subspan(1);
    return first;
  }
  std::string bytes(std::size_t most) {
    const std::size_t count = std::min(most, left_.size());
    std::string text(reinterpret_cast<const char*>(left_.data()), count);
    left_ = left_.subspan(count);
    return text;
  }
  std::string word() {
    static constexpr const char* kWords[] = {"w",    "w@0", "w@2", "w@4", "w@-1",  "w@",  "@",
                                             "run",  "set", "a",   "b",   "ranks", "1",   "2",
                                             "rank", "7",   "64",  "65",  "crc32", "step"};
    const std::uint8_t chosen = byte();
    return chosen < std::size(kWords) ? kWords[chosen] : bytes(chosen % 16);
  }
  bool is_empty() const { return left_.empty(); }

 private:
  std::span<const std::uint8_t> left_;
};

void refute(const char* why) {
  std::fprintf(stderr, "REFUTED: %s\n", why);
  std::abort();
}

// A folder for each process, in memory where the system has it.
const std::string& folder() {
  static const std::string made = [] {
    const std::string parent = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    std::string name = parent + "/lockstep-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    static const std::string kept = name;
    std::atexit([] { fs::remove_all(kept); });
    return name;
  }();
  return made;
}

void write_raw(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A file of which the header and the checksum are right, whatever its words say.
void write_made(const std::string& path, Input& input) {
  Checkpoint made;
  for (int i = input.byte() % 5; i > 0; --i) {
    const std::string key = input.word();
    made.metadata[key] = input.word();
  }
  for (int i = input.byte() % 4; i > 0; --i) {
    StoredTensor tensor{.name = input.word()};
    std::int64_t count = 1;
    for (int d = input.byte() % 3; d > 0; --d) {
      tensor.shape.push_back(input.byte() % 5);
      count *= tensor.shape.back();
    }
    tensor.values.resize(static_cast<std::size_t>(count), 1.0f);
    made.tensors.push_back(std::move(tensor));
  }
  try {
    write_checkpoint(path, made);
  } catch (const std::exception&) {  // Two tensors of one name, or a word that is no text.
  }
}

}  // namespace

int try_input(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::string path = folder() + "/state", stranger = folder() + "/kept";
  const std::string files[] = {path, path + ".a.rank-0000-of-0002", path + ".a.rank-0001-of-0002"};
  for (const std::string& file : files) fs::remove(file);
  write_raw(stranger, "of somebody else");
  for (const std::string& file : files) {
    if (input.is_empty()) break;
    const std::uint8_t kind = input.byte();
    if (kind % 2 == 0) write_made(file, input);
    if (kind % 2 == 1) write_raw(file, input.bytes(input.byte() + std::size_t{256} * (kind / 16)));
  }
  const Metadata identity{{"run", "7"}};
  const auto wanted = [](const Metadata&) {
    return std::vector<TensorShard>{{"w", 2, 3, 0, false, std::vector<float>(6, -1.0f)}};
  };
  try {
    read_run(path, identity, wanted);
  } catch (const std::runtime_error& refused) {
    if (*refused.what() == '\0') refute("a checkpoint is refused without a reason");
  }
  const RunState state{identity, wanted(identity)};
  write_run(path, identity, state, nullptr);
  if (!fs::exists(stranger)) refute("a file of somebody else is gone");
  read_run(path, identity, wanted);  // What was just saved is whole.
  return 0;
}

}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::try_input(data, size);
}
