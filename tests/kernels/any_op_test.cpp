// Claims about every op there is: its operands tell the truth, and every planted fault is a fault.
#include "tests/kernels/any_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include "kernels/fault.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSeeds = 60;

bool written(Access access) { return access != Access::in; }

// The bytes of an op's operands with this access, one piece after the other.
std::vector<std::byte> bytes_with(const Submission& submission, Access access) {
  std::vector<std::byte> bytes;
  for (const OperandBytes& x : submission.operands()) {
    for (std::int64_t i = 0; x.access == access && i < x.rows; ++i) {
      const auto* row = static_cast<const std::byte*>(x.base) + i * x.pitch_bytes;
      bytes.insert(bytes.end(), row, row + x.row_bytes);
    }
  }
  return bytes;
}

std::vector<std::byte> result_of(int id, std::uint64_t seed, Fill fill) {
  HostOpMemory memory;
  const OpCase made = any_op(id, seed, memory, fill);
  made.submission.run_on_host();
  std::vector<std::byte> result = bytes_with(made.submission, Access::out);
  const std::vector<std::byte> accumulated = bytes_with(made.submission, Access::accum);
  result.insert(result.end(), accumulated.begin(), accumulated.end());
  return result;
}

class EveryOp : public testing::TestWithParam<int> {};

TEST_P(EveryOp, ChangesNoByteOutsideItsOutputs) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostOpMemory memory, untouched;
    const OpCase made = any_op(GetParam(), seed, memory);
    any_op(GetParam(), seed, untouched);
    made.submission.run_on_host();
    // What the op declares written is put back; then nothing may differ.
    for (const OperandBytes& x : made.submission.operands()) {
      for (std::size_t k = 0; k < memory.size() && written(x.access); ++k) {
        const std::ptrdiff_t offset = static_cast<std::byte*>(x.base) - memory.block_data(k);
        if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(memory.block(k).size())) continue;
        for (std::int64_t i = 0; i < x.rows; ++i) {
          std::memcpy(memory.block_data(k) + offset + i * x.pitch_bytes,
                      untouched.block_data(k) + offset + i * x.pitch_bytes, static_cast<std::size_t>(x.row_bytes));
        }
      }
    }
    for (std::size_t k = 0; k < memory.size(); ++k) {
      ASSERT_EQ(memory.block(k), untouched.block(k)) << made.name << ", operand block " << k;
    }
  }
}

// Undefined bytes, rows of no document and the gaps between rows decide nothing; and since Out itself starts with two
// different fills, every byte of it is written.
TEST_P(EveryOp, DependsOnNothingButItsInputs) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    // Rope works in place and leaves rows of no document as they are.
    const float padding = AllOps::id_of<Rope<float>>() == GetParam() ? Fill{}.padding : 1e30f;
    const std::vector<std::byte> poisoned = result_of(GetParam(), seed, Fill{});
    const std::vector<std::byte> quiet = result_of(GetParam(), seed, Fill{.undefined = 0x11, .padding = padding});
    ASSERT_EQ(poisoned, quiet) << "op " << GetParam() << " seed " << seed;
  }
}

TEST(Rope, RotatesOnlyRowsOfDocuments) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostOpMemory memory;
    const OpCase made = any_op(AllOps::id_of<Rope<float>>(), seed, memory);
    const auto& op = *static_cast<const Rope<float>*>(made.submission.op());
    made.submission.run_on_host();
    for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
      for (std::int64_t c = 0; c < op.qkv.cols; ++c) {
        ASSERT_EQ(op.row_document.data[i] < 0, op.qkv.row(i)[c] != op.qkv.row(i)[c]) << made.name;
      }
    }
  }
}

// No NaN of the padding arrives anywhere: all generated inputs inside documents are finite.
TEST_P(EveryOp, GivesNumbers) {
  if (AllOps::id_of<Rope<float>>() == GetParam() || AllOps::id_of<Digest>() == GetParam()) return;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<std::byte> result = result_of(GetParam(), seed, Fill{});
    for (std::size_t e = 0; e < result.size(); e += sizeof(float)) {
      std::uint32_t word;
      std::memcpy(&word, result.data() + e, sizeof word);
      const bool none = word == 0xffffffffu && GetParam() == AllOps::id_of<PackMetadata>();  // -1: no document.
      const bool number = (word & 0x7f800000u) != 0x7f800000u;
      ASSERT_TRUE(number || none) << "op " << GetParam() << " seed " << seed << " word " << e / sizeof(float);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::Range(0, AllOps::size), [](const auto& info) {
  HostOpMemory memory;
  std::string name = any_op(info.param, 0, memory).submission.type().name;
  std::erase(name, '_');
  return name;
});

// A fault that changes no result of any op is no fault. The seeds are those of the properties above.
TEST(Faults, EachChangesSomeResult) {
  for (const std::string& name : kernel_faults()) {
    bool seen = false;
    for (int id = 0; id < AllOps::size && !seen; ++id) {
      for (std::uint64_t seed = 0; seed < 12 && !seen; ++seed) {
        const std::vector<std::byte> sound = result_of(id, seed, Fill{});
        plant_fault(name);
        seen = result_of(id, seed, Fill{}) != sound;
        plant_fault("");
      }
    }
    EXPECT_TRUE(seen) << name;
  }
}

// The list names the fault points that the sources have, no more and no fewer.
TEST(Faults, AreListed) {
  std::vector<std::string> found, listed = kernel_faults();
  const std::regex point("fault\\(\"([a-z0-9-]+)\"\\)");
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_ROOT "/kernels/host")) {
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator it(text.begin(), text.end(), point), end; it != end; ++it) found.push_back((*it)[1]);
  }
  std::sort(found.begin(), found.end());
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(found, listed);
}

}  // namespace
}  // namespace lockstep
