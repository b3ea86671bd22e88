// Every op gives the same bytes on the host and on a GPU, submitted at once and replayed from a
// graph.
#include "kernels/ops/cudnn_attention.h"
#include "kernels/submission/ops.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSeeds = 24;

void expect_host_bytes(int id, Run run) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    expect_same_bytes(op_name(id) + ", seed " + std::to_string(seed), run,
                      [&](OpMemory& memory) { return any_op(id, seed, memory).submission; });
  }
}

// All but those of a library, whose bits are its own: cuda_cudnn_test.
std::vector<int> with_bits_of_the_contract() {
  std::vector<int> ids;
  for (int id = 0; id < AllOps::size; ++id) {
    if (id != AllOps::id_of<CudnnAttentionForward>() &&
        id != AllOps::id_of<CudnnAttentionBackward>())
      ids.push_back(id);
  }
  return ids;
}

class EveryOpOnAGpu : public testing::TestWithParam<int> {};

TEST_P(EveryOpOnAGpu, HasTheBytesOfTheHost) { expect_host_bytes(GetParam(), at_once); }
TEST_P(EveryOpOnAGpu, HasTheBytesOfTheHostWhenReplayed) {
  expect_host_bytes(GetParam(), from_a_graph);
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOpOnAGpu, testing::ValuesIn(with_bits_of_the_contract()),
                         [](const auto& info) {
                           std::string name = op_name(info.param);
                           std::erase(name, '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep
