// The bf16 scan in tiles on a GPU has the host's bytes where documents, chunks and groups of heads
// begin and end, in both ways to the chunk states: all chunks at once, and, where rows and heads
// are many, one after the other. With many documents there are more chunks than blocks.
#include "kernels/ops/scan.h"
#include "kernels/submission/ops.h"
#include "tests/kernels/any_op/drawn_operands.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

struct PackedBatch {
  const char* name;
  std::vector<std::int32_t> lengths;
  std::int32_t gap;  // Rows of no document after every document.
  std::int32_t groups, group_heads, chunk;
  std::int32_t capacity;  // Documents there is room for.
  float a_log = 1.0f;     // Its middle; the greater, the faster a head decays.
};

std::vector<std::int32_t> tiny(std::int32_t documents) {
  std::vector<std::int32_t> lengths;
  for (std::int32_t i = 0; i < documents; ++i) lengths.push_back(1 + i % 4);
  return lengths;
}

const PackedBatch kPacks[] = {
    {"one_row", {1}, 0, 1, 1, 128, 1},
    {"one_chunk", {128}, 0, 1, 2, 128, 2},
    {"around_a_chunk", {127, 128, 129, 0, 1, 257}, 3, 2, 2, 128, 8},
    {"short_chunks", {200, 64, 65, 63}, 1, 3, 1, 64, 5},
    {"odd_chunks", {500, 20}, 2, 1, 9, 112, 3},
    {"least_chunks", {40, 17, 3}, 5, 1, 4, 16, 3},
    {"many_heads", {400, 17, 1, 300}, 5, 1, 5, 128, 6},
    {"one_long", {1300}, 0, 1, 2, 128, 1},
    {"decays_much", {400, 128, 70}, 1, 2, 3, 128, 4, 2.5f},  // To less than e^-87 in most chunks.
    {"decays_much_now_and_then", {900, 60}, 1, 1, 8, 128, 4, 1.7f},
    {"no_rows", {0, 0, 0}, 70, 1, 2, 128, 3},
    {"room_for_many_chunks", {640, 100, 384, 385, 0, 1}, 2, 1, 2, 128, 1100},
    {"room_for_many_odd_chunks", {500, 96, 20, 95, 97}, 1, 1, 9, 96, 300},
    {"more_chunks_than_blocks", tiny(90), 1, 1, 2, 16, 100},
    {"walks", {640, 100, 384, 385, 0, 1}, 2, 2, 40, 128, 20},
    {"walks_odd_chunks", {500, 96, 20, 95, 97}, 1, 10, 9, 96, 300},
    {"walks_short_chunks", {130, 40, 97, 1, 30}, 2, 4, 16, 16, 20},
    {"walks_more_chunks_than_blocks", tiny(130), 0, 4, 16, 16, 140},
};

class Operands : DrawnOperands {
 public:
  Operands(const PackedBatch& pack, OpMemory& memory)
      : DrawnOperands(pack.lengths, pack.gap, memory), pack_(pack) {
    for (std::size_t d = 0; d < pack.lengths.size(); ++d) {
      for (std::int32_t done = 0; done < pack.lengths[d]; done += pack.chunk) {
        chunk_document_.push_back(static_cast<std::int32_t>(d));
        chunk_start_.push_back(cu_seqlens_padded_[d] + done);
        chunk_rows_.push_back(std::min(pack.chunk, pack.lengths[d] - done));
      }
    }
    cu_seqlens_.resize(static_cast<std::size_t>(pack.capacity + 1), cu_seqlens_.back());
    cu_seqlens_padded_.resize(cu_seqlens_.size(), static_cast<std::int32_t>(rows_));
    chunk_document_.resize(static_cast<std::size_t>(rows_ / pack.chunk + pack.capacity), -1);
    chunk_start_.resize(chunk_document_.size(), 0);
    chunk_rows_.resize(chunk_document_.size(), 0);
  }
  ScanForward<bf16> forward() {
    return {.xbc = around(0.0f, width()),
            .dt = around(-2.0f, heads()),
            .dt_bias = parameter(0.2f),
            .a_log = parameter(pack_.a_log),
            .d = parameter(1.0f),
            .cu_seqlens = integers(cu_seqlens_),
            .cu_seqlens_padded = integers(cu_seqlens_padded_),
            .row_document = integers(document_),
            .chunk_document = integers(chunk_document_),
            .chunk_start = integers(chunk_start_),
            .chunk_rows = integers(chunk_rows_),
            .states = states(),
            .y = undefined<bf16>(rows_, heads() * kHead),
            .heads = static_cast<std::int32_t>(heads()),
            .groups = pack_.groups,
            .state = kState,
            .chunk = pack_.chunk};
  }
  ScanBackward<bf16> backward() {
    return {.xbc = around(0.0f, width()),
            .dt = around(-2.0f, heads()),
            .dt_bias = parameter(0.2f),
            .a_log = parameter(pack_.a_log),
            .d = parameter(1.0f),
            .dy = around(0.0f, heads() * kHead),
            .cu_seqlens = integers(cu_seqlens_),
            .cu_seqlens_padded = integers(cu_seqlens_padded_),
            .row_document = integers(document_),
            .chunk_document = integers(chunk_document_),
            .chunk_start = integers(chunk_start_),
            .chunk_rows = integers(chunk_rows_),
            .states = states(),
            .dstates = states(),
            .rows = undefined<float>(rows_, 3 * heads()),
            .dxbc = undefined<bf16>(rows_, width()),
            .ddt = undefined<bf16>(rows_, heads()),
            .ddt_bias = undefined<float>(1, heads()),
            .da_log = undefined<float>(1, heads()),
            .dd = undefined<float>(1, heads()),
            .heads = static_cast<std::int32_t>(heads()),
            .groups = pack_.groups,
            .state = kState,
            .chunk = pack_.chunk};
  }

 private:
  static constexpr std::int32_t kHead = 64;
  static constexpr std::int32_t kState = 128;
  std::int64_t heads() const { return pack_.groups * pack_.group_heads; }
  std::int64_t width() const { return heads() * kHead + 2 * pack_.groups * kState; }
  Tensor<float> states() {
    return undefined<float>(static_cast<std::int64_t>(chunk_document_.size()),
                            heads() * kHead * kState);
  }
  Tensor<bf16> around(float mean, std::int64_t cols) {
    return drawn(cols, 0, [&](std::int64_t) { return mean + next(); });
  }
  Tensor<float> parameter(float mean) {
    std::vector<float> x;
    for (std::int64_t h = 0; h < heads(); ++h) x.push_back(mean + 0.3f * next());
    return place(x, 1, heads());
  }
  const PackedBatch& pack_;
  std::vector<std::int32_t> chunk_document_, chunk_start_, chunk_rows_;
};

class ScanOnAGpu : public testing::TestWithParam<PackedBatch> {};

TEST_P(ScanOnAGpu, ForwardHasTheBytesOfTheHost) {
  expect_same_bytes(GetParam().name, at_once, [](OpMemory& memory) {
    return Submission(Operands(GetParam(), memory).forward());
  });
}
TEST_P(ScanOnAGpu, BackwardHasTheBytesOfTheHost) {
  expect_same_bytes(GetParam().name, at_once, [](OpMemory& memory) {
    return Submission(Operands(GetParam(), memory).backward());
  });
}
TEST_P(ScanOnAGpu, BackwardHasTheBytesOfTheHostInAGraph) {
  expect_same_bytes(GetParam().name, from_a_graph, [](OpMemory& memory) {
    return Submission(Operands(GetParam(), memory).backward());
  });
}

INSTANTIATE_TEST_SUITE_P(Packs, ScanOnAGpu, testing::ValuesIn(kPacks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
