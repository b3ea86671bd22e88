// bf16 attention on a GPU has the host's bytes where its tiles begin and end: documents around
// multiples of 64 and 128 rows, gaps, empty documents, heads of every width, groups of every size.
#include "kernels/ops/attention.h"
#include "kernels/submission/ops.h"
#include "tests/kernels/any_op/drawn_operands.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

struct PackedBatch {
  const char* name;
  std::vector<std::int32_t> lengths;
  std::int32_t gap;  // Rows of no document after every document.
  std::int32_t kv_heads, group, head_dim;
  float amplitude;  // For queries and keys: large ones make p underflow.
  std::int32_t offset =
      0;  // Elements before the first row, which then lies at no multiple of 16 bytes.
};

const PackedBatch kPacks[] = {
    {"one_row", {1}, 0, 1, 1, 64, 1},
    {"one_tile", {128}, 0, 1, 1, 128, 1},
    {"around_a_tile", {127, 128, 129}, 0, 1, 2, 128, 1},
    {"around_half_a_tile", {63, 64, 65, 191, 192, 193}, 3, 2, 3, 64, 1},
    {"many_short_and_empty", {1, 2, 0, 3, 1, 17, 0, 0, 33, 1, 15, 16, 0, 31}, 1, 2, 2, 80, 2},
    {"several_tiles", {700, 65, 300, 1}, 5, 1, 4, 128, 1},
    {"one_long", {1300}, 0, 1, 2, 128, 1},
    {"narrow", {400, 90}, 0, 2, 1, 16, 1},
    {"odd_widths", {257, 1, 511}, 7, 3, 2, 112, 1},
    {"underflow", {640, 100}, 0, 1, 2, 96, 30},
    {"no_rows", {0, 0, 0}, 9, 1, 2, 64, 1},
    {"no_alignment", {200, 129, 5}, 2, 2, 2, 48, 1, 5},
    // So many rows and heads that tiles have 128 rows, on a GPU of at most 139 multiprocessors.
    {"around_wide_tiles", {127, 128, 129, 255, 257}, 0, 4, 5, 128, 1},
    {"wide_tiles_of_odd_widths", {257, 1, 511}, 7, 6, 4, 112, 1},
    {"wide_tiles_without_alignment", {400, 129, 5, 300}, 2, 4, 6, 48, 1, 5},
    {"more_tiles_than_blocks",
     {130, 200, 90, 70, 300, 10, 5, 140, 128, 66, 129, 1},
     0,
     4,
     4,
     64,
     1},
};

class Operands : DrawnOperands {
 public:
  Operands(const PackedBatch& pack, OpMemory& memory)
      : DrawnOperands(pack.lengths, pack.gap, memory), pack_(pack) {}
  AttentionForward<bf16> forward() {
    const std::int64_t hd = pack_.head_dim;
    return {.qkv = qkv(),
            .cu_seqlens = integers(cu_seqlens_),
            .cu_seqlens_padded = integers(cu_seqlens_padded_),
            .row_document = integers(document_),
            .o = undefined<bf16>(rows_, heads() * hd),
            .lse = undefined<float>(rows_, heads()),
            .heads = static_cast<std::int32_t>(heads()),
            .kv_heads = pack_.kv_heads,
            .head_dim = pack_.head_dim};
  }
  // The forward's outputs as the host has them.
  AttentionBackward<bf16> backward() {
    HostOpMemory apart;
    const AttentionForward<bf16> on_host = Operands(pack_, apart).forward();
    run(HostQueue{}, on_host);
    const std::int64_t hd = pack_.head_dim;
    const std::vector<bf16> o(on_host.o.data, on_host.o.data + rows_ * heads() * hd);
    const std::vector<float> lse(on_host.lse.data, on_host.lse.data + rows_ * heads());
    return {.qkv = qkv(),
            .o = place(o, rows_, heads() * hd),
            .lse = place(lse, rows_, heads()),
            .dout = drawn(heads() * hd, pack_.offset, [&](std::int64_t) { return next(); }),
            .cu_seqlens = integers(cu_seqlens_),
            .cu_seqlens_padded = integers(cu_seqlens_padded_),
            .row_document = integers(document_),
            .delta = undefined<float>(rows_, heads()),
            .next_tile = undefined<std::int32_t>(1, 2),
            .dqkv = undefined<bf16>(rows_, (heads() + 2 * pack_.kv_heads) * hd),
            .heads = static_cast<std::int32_t>(heads()),
            .kv_heads = pack_.kv_heads,
            .head_dim = pack_.head_dim};
  }

 private:
  std::int64_t heads() const { return pack_.kv_heads * pack_.group; }
  Tensor<bf16> qkv() {
    const std::int64_t hd = pack_.head_dim, large = (heads() + pack_.kv_heads) * hd;
    return drawn(large + pack_.kv_heads * hd, pack_.offset,
                 [&](std::int64_t c) { return next() * (c < large ? pack_.amplitude : 1.0f); });
  }
  const PackedBatch& pack_;
};

class AttentionOnAGpu : public testing::TestWithParam<PackedBatch> {};

TEST_P(AttentionOnAGpu, ForwardHasTheBytesOfTheHost) {
  expect_same_bytes(GetParam().name, at_once, [](OpMemory& memory) {
    return Submission(Operands(GetParam(), memory).forward());
  });
}
TEST_P(AttentionOnAGpu, BackwardHasTheBytesOfTheHost) {
  expect_same_bytes(GetParam().name, at_once, [](OpMemory& memory) {
    return Submission(Operands(GetParam(), memory).backward());
  });
}

INSTANTIATE_TEST_SUITE_P(Packs, AttentionOnAGpu, testing::ValuesIn(kPacks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
