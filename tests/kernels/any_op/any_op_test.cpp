// Claims about every op there is: its operands tell the truth, and every planted fault is a fault.
#include "tests/kernels/any_op/any_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "harness/inject/fault_table.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/submission/ops.h"

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

bool works_in_place_on_documents(int id) {
  return id == AllOps::id_of<Rope<float>>() || id == AllOps::id_of<Rope<bf16>>();
}

class EveryOp : public testing::TestWithParam<int> {};
class EveryOpThatWritesPadding : public testing::TestWithParam<int> {};

TEST_P(EveryOp, ChangesNoByteOutsideItsOutputs) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostOpMemory memory, untouched;
    const OpCase made = any_op(GetParam(), seed, memory);
    any_op(GetParam(), seed, untouched);
    made.submission.run_on_host();
    // Bytes that the op declares written are put back; then nothing may differ.
    for (const OperandBytes& x : made.submission.operands()) {
      for (std::size_t k = 0; k < memory.size() && written(x.access); ++k) {
        const std::ptrdiff_t offset = static_cast<std::byte*>(x.base) - memory.block_data(k);
        if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(memory.block(k).size())) continue;
        for (std::int64_t i = 0; i < x.rows; ++i) {
          std::memcpy(memory.block_data(k) + offset + i * x.pitch_bytes,
                      untouched.block_data(k) + offset + i * x.pitch_bytes,
                      static_cast<std::size_t>(x.row_bytes));
        }
      }
    }
    for (std::size_t k = 0; k < memory.size(); ++k) {
      ASSERT_EQ(memory.block(k), untouched.block(k)) << made.name << ", operand block " << k;
    }
  }
}

// Undefined bytes, rows of no document and the gaps between rows decide nothing; and since Out
// itself starts with two different fills, every byte of it is written.
TEST_P(EveryOp, DependsOnNothingButItsInputs) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    // Rope works in place and leaves rows of no document as they are.
    const float padding = works_in_place_on_documents(GetParam()) ? Fill{}.padding : 1e30f;
    const std::vector<std::byte> poisoned = result_of(GetParam(), seed, Fill{});
    const std::vector<std::byte> quiet =
        result_of(GetParam(), seed, Fill{.undefined = 0x11, .padding = padding});
    ASSERT_EQ(poisoned, quiet) << "op " << GetParam() << " seed " << seed;
  }
}

template <class T>
void expect_rotation_of_documents_only() {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostOpMemory memory;
    const OpCase made = any_op(AllOps::id_of<Rope<T>>(), seed, memory);
    const auto& op = *static_cast<const Rope<T>*>(made.submission.op());
    made.submission.run_on_host();
    for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
      for (std::int64_t c = 0; c < op.qkv.cols; ++c) {
        const float x = load(op.qkv.row(i)[c]);
        ASSERT_EQ(op.row_document.data[i] < 0, x != x) << made.name;
      }
    }
  }
}
TEST(Rope, RotatesOnlyRowsOfDocuments) {
  expect_rotation_of_documents_only<float>();
  expect_rotation_of_documents_only<bf16>();
}

// No NaN of the padding arrives anywhere: all generated inputs inside documents are finite.
TEST_P(EveryOpThatWritesPadding, GivesNumbers) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostOpMemory memory;
    const OpCase made = any_op(GetParam(), seed, memory);
    made.submission.run_on_host();
    ASSERT_TRUE(made.gives_numbers(made.submission.op())) << made.name;
  }
}

// ---- The amax of what an op stores --------------------------------------------------------------

In<bf16> stored_by(const RmsNormForward<bf16>& op) { return op.y; }
In<bf16> stored_by(const RmsNormBackward<bf16>& op) { return op.dx; }
In<bf16> stored_by(const GatedNormForward<bf16>& op) { return op.o; }
In<bf16> stored_by(const GatedNormBackward<bf16>& op) { return op.dz; }
In<bf16> stored_by(const ActivationForward<bf16>& op) { return op.a; }
In<bf16> stored_by(const ActivationBackward<bf16>& op) { return op.dh; }
In<bf16> stored_by(const ResidualBackward<bf16>& op) { return op.dy; }
In<bf16> stored_by(const ConvBackward<bf16>& op) { return op.dx; }
In<bf16> stored_by(const ScanBackward<bf16>& op) { return op.ddt; }
In<bf16> stored_by(const Rope<bf16>& op) { return op.qkv; }
In<bf16> stored_by(const AttentionForward<bf16>& op) { return op.o; }
In<bf16> stored_by(const Dispatch<bf16>& op) { return op.buffer; }
In<bf16> stored_by(const CombineBackward<bf16>& op) { return op.dy; }

// The segment of row r if that is in use; -1 for any other row.
template <class Op>
std::int64_t used_segment(const Op& op, std::int64_t r) {
  In<std::int32_t> used;
  if constexpr (requires { op.row_pair; }) {
    used = op.row_pair;
  } else {
    used = op.row_document;
  }
  if (used.data[r] < 0) return -1;
  if constexpr (requires { op.start; }) {
    for (std::int64_t s = 0; op.start && s < op.start.cols; ++s) {
      if (r >= op.start.data[s] && r < op.start.data[s] + op.rows.data[s]) return s;
    }
  }
  return 0;
}

template <class Op>
void expect_amax_of_what_is_stored() {
  int raised = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostOpMemory memory;
    const OpCase made = any_op(AllOps::id_of<Op>(), seed, memory);
    const Op& op = *static_cast<const Op*>(made.submission.op());
    if (!op.amax) continue;
    std::vector<std::uint32_t> want(op.amax.data, op.amax.data + op.amax.cols);
    const std::vector<std::uint32_t> before = want;
    made.submission.run_on_host();
    const In<bf16> stored = stored_by(op);
    for (std::int64_t r = 0; r < stored.rows; ++r) {
      const std::int64_t s = used_segment(op, r);
      for (std::int64_t c = 0; s >= 0 && c < stored.cols; ++c) {
        const std::uint32_t magnitude = bits(load(stored.row(r)[c])) & 0x7fffffffu;
        std::uint32_t& word = at(want, s);
        word = std::max(word, magnitude);
      }
    }
    raised += want != before;
    ASSERT_TRUE(std::equal(want.begin(), want.end(), op.amax.data)) << made.name;
  }
  EXPECT_GT(raised, 10) << Op::kName;
}
template <class... Ops>
void expect_amaxes_of_what_is_stored() {
  (expect_amax_of_what_is_stored<Ops>(), ...);
}
TEST(Amax, IsThatOfWhatAnOpStores) {
  expect_amaxes_of_what_is_stored<
      RmsNormForward<bf16>, RmsNormBackward<bf16>, GatedNormForward<bf16>, GatedNormBackward<bf16>,
      ActivationForward<bf16>, ActivationBackward<bf16>, ResidualBackward<bf16>, ConvBackward<bf16>,
      ScanBackward<bf16>, Rope<bf16>, AttentionForward<bf16>, Dispatch<bf16>,
      CombineBackward<bf16>>();
}

std::string test_name(const testing::TestParamInfo<int>& info) {
  std::string name = op_name(info.param);
  std::erase(name, '_');
  return name;
}

std::vector<int> ops_that_write_padding() {
  std::vector<int> ids(AllOps::size);
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, works_in_place_on_documents);
  return ids;
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::Range(0, AllOps::size), test_name);
INSTANTIATE_TEST_SUITE_P(Ops, EveryOpThatWritesPadding, testing::ValuesIn(ops_that_write_padding()),
                         test_name);

// A fault that changes no result of any op is no fault. The seeds are those of the properties
// above.
TEST(Faults, EachChangesSomeResult) {
  std::map<std::pair<std::uint64_t, int>, std::vector<std::byte>>
      sound;  // As far as any fault needed.
  for (const std::string& name : kernel_faults()) {
    bool seen = false;
    // Each op once before any a second time: most faults show at the first seed of their op.
    for (std::uint64_t seed = 0; seed < 12 && !seen; ++seed) {
      for (int id = 0; id < AllOps::size && !seen; ++id) {
        const auto [place, is_new] = sound.try_emplace({seed, id});
        if (is_new) place->second = result_of(id, seed, Fill{});
        plant_fault(name);
        seen = result_of(id, seed, Fill{}) != place->second;
        plant_fault("");
      }
    }
    EXPECT_TRUE(seen) << name;
  }
}

}  // namespace
}  // namespace lockstep
