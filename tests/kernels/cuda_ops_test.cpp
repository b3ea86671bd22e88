// Every op gives the same bytes on the host and on a GPU, submitted at once and replayed from a graph.
#include "tests/kernels/on_gpu.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSeeds = 24;

void expect_host_bytes(int id, Run run) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    expect_same_bytes(op_name(id) + ", seed " + std::to_string(seed), run,
                      [&](OpMemory& memory) { return any_op(id, seed, memory).submission; });
  }
}

class EveryOpOnAGpu : public testing::TestWithParam<int> {};

TEST_P(EveryOpOnAGpu, HasTheBytesOfTheHost) { expect_host_bytes(GetParam(), at_once); }
TEST_P(EveryOpOnAGpu, HasTheBytesOfTheHostWhenReplayed) { expect_host_bytes(GetParam(), from_a_graph); }

INSTANTIATE_TEST_SUITE_P(Ops, EveryOpOnAGpu, testing::Range(0, AllOps::size), [](const auto& info) {
  std::string name = op_name(info.param);
  std::erase(name, '_');
  return name;
});

}  // namespace
}  // namespace lockstep
