// The simulated device and the GPU make the same of random programs: memory, names of errors, states of captures.
#include <cstdlib>

#include "tests/engine/random_program.h"

namespace lockstep::test {
namespace {

// LOCKSTEP_CASES: how many programs.
TEST(CudaConformance, TheGpuAgreesWithTheSimulatedDevice) {
  if (cuda_devices().empty()) GTEST_SKIP() << "no GPU";
  const char* cases = std::getenv("LOCKSTEP_CASES");
  const std::uint64_t programs = cases == nullptr ? 4000 : std::strtoull(cases, nullptr, 10);
  int differences = 0;
  for (std::uint64_t seed = 1; seed <= programs && differences < 8; ++seed) {
    const std::vector<std::string> sim = RandomProgram(open_sim({.seed = seed}), seed).run(60);
    const std::vector<std::string> cuda = RandomProgram(open_cuda(), seed).run(60);
    const std::string found = first_difference(sim, cuda);
    EXPECT_TRUE(found.empty()) << "seed " << seed << ", the simulated device first:\n" << found;
    differences += !found.empty();
  }
}

// The acceptance of the device layer on a GPU: ops, a capture with a fork, replay, counters.
TEST(CudaConformance, ACapturedForkReplaysOnTheGpu) {
  if (cuda_devices().empty()) GTEST_SKIP() << "no GPU";
  Device device(open_cuda());
  EXPECT_EQ(device.info().kind, "cuda");
  EXPECT_GE(device.info().compute_capability, 80);
  const Stream a(device, "a"), b(device, "b");
  const Event e(device), f(device);
  const Floats x(device, 1000), y(device, 1000);
  write(a, x, 1);
  write(a, y, 2);
  a.synchronize();
  a.begin_capture();
  a.record(e);
  b.wait(e);
  b.submit(ZeroGradient{.acc = y.row()});
  b.submit(AccumulateGradient{.g = x.row(), .acc = y.row()});
  b.record(f);
  a.wait(f);
  a.submit(AccumulateGradient{.g = y.row(), .acc = x.row()});
  const Graph graph = a.end_capture();
  for (int i = 0; i < 3; ++i) a.launch(graph);
  EXPECT_EQ(read(a, x), std::vector<float>(1000, 8.0f));
  EXPECT_EQ(device.ops, 9);
  EXPECT_EQ(code_of([&] { a.end_capture(); }), "cudaErrorIllegalState");
}

}  // namespace
}  // namespace lockstep::test
