// The simulated device and the GPU make the same of random programs: memory, names of errors,
// states of captures.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/ops/accumulate.h"
#include "tests/engine/device/random_program.h"

namespace lockstep::test {
namespace {

// LOCKSTEP_CASES: how many programs.
TEST(CudaConformance, TheGpuAgreesWithTheSimulatedDevice) {
  ASSERT_FALSE(cuda_devices().empty()) << "this test takes a GPU; ctest skips it without one";
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
  ASSERT_FALSE(cuda_devices().empty()) << "this test takes a GPU; ctest skips it without one";
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
  EXPECT_EQ(device.counters.ops, 9);
  EXPECT_EQ(code_of([&] { a.end_capture(); }), "cudaErrorIllegalState");
}

// A graph's copies have empty nodes behind them that nobody asked for. Who waits for the last copy
// has joined all; who does not is told so.
TEST(CudaConformance, CopiesOfACaptureAreJoinedByTheirEvents) {
  ASSERT_FALSE(cuda_devices().empty()) << "this test takes a GPU; ctest skips it without one";
  Device device(open_cuda());
  const Stream a(device, "a"), b(device, "b"), c(device, "c");
  const Event fork(device), left(device), returned(device), last(device);
  const Floats x(device, 1000), y(device, 1000), z(device, 1000);
  const PinnedBuffer pinned(device, 1000 * sizeof(float));
  for (const Floats* floats : {&x, &y, &z}) write(a, *floats, 1);
  a.synchronize();
  std::memset(pinned.data(), 0, pinned.bytes());
  const auto capture = [&](bool joined) {
    a.begin_capture();
    a.record(fork);
    b.wait(fork);
    b.copy(pinned.data(), x.data(), pinned.bytes(), CopyKind::device_to_host);
    b.record(left);
    c.wait(left);
    c.copy(y.data(), pinned.data(), pinned.bytes(), CopyKind::host_to_device);
    c.record(returned);
    a.wait(returned);
    a.submit(AccumulateGradient{.g = x.row(), .acc = y.row()});
    b.copy(z.data(), pinned.data(), pinned.bytes(), CopyKind::host_to_device);
    b.record(last);
    b.wait(returned);
    if (joined) a.wait(last);
    return a.end_capture();
  };
  EXPECT_EQ(code_of([&] { capture(false); }), "cudaErrorStreamCaptureUnjoined");
  const Graph graph = capture(true);
  for (int i = 0; i < 2; ++i) a.launch(graph);
  EXPECT_EQ(read(a, y), std::vector<float>(1000, 2.0f));
  EXPECT_EQ(read(a, z), std::vector<float>(1000, 1.0f));
}

// Poison reaches the end of so much memory long after a call returns, so what did not wait for it
// is overwritten.
TEST(CudaConformance, NoStreamWorksOnMemoryBeforeItIsPoisoned) {
  ASSERT_FALSE(cuda_devices().empty()) << "this test takes a GPU; ctest skips it without one";
  constexpr std::int64_t kMany = std::int64_t{1} << 29, kEnd = 4096;
  Device device(open_cuda(), nullptr,
                {.delays = {}, .seed = 1, .poison_fresh = true, .poison_freed = true});
  const Stream a(device, "a"), b(device, "b");
  const Event e(device), f(device);
  const PinnedBuffer nothing(device, kEnd * sizeof(float));
  std::memset(nothing.data(), 0, nothing.bytes());
  const auto clear =
      [&](const Stream& stream,
          const Floats& of) {  // By a copy, for which no multiprocessor must be free.
        stream.copy(of.data() + kMany - kEnd, nothing.data(), nothing.bytes(),
                    CopyKind::host_to_device);
      };
  const auto end = [&](const Floats& of) {  // Once everything is over.
    a.synchronize();
    b.synchronize();
    device.release(device.allocate(std::size_t{1} << 22, false), false);
    std::vector<float> seen(kEnd);
    a.copy(seen.data(), of.data() + kMany - kEnd, kEnd * sizeof(float), CopyKind::device_to_host);
    a.synchronize();
    return seen;
  };
  const std::vector<float> zeros(kEnd, 0.0f);
  {
    const Floats memory(device, kMany);
    clear(b, memory);
    EXPECT_EQ(end(memory), zeros) << "a stream that was there before";
  }
  {
    const Floats memory(device, kMany);
    const Stream late(device, "late");
    clear(late, memory);
    late.synchronize();
    EXPECT_EQ(end(memory), zeros) << "a stream that came later";
  }
  {
    const Floats memory(device, kMany);
    a.begin_capture();
    a.record(e);
    b.wait(e);
    clear(b, memory);
    b.record(f);
    a.wait(f);
    const Graph graph = a.end_capture();
    a.launch(graph);
    EXPECT_EQ(end(memory), zeros) << "a graph";
  }
  const Floats fresh(device, kMany);
  const std::vector<float> seen = end(fresh);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](float x) { return std::isnan(x); }));
}

}  // namespace
}  // namespace lockstep::test
