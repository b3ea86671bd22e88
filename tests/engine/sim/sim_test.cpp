// The simulated device: what runs when, in which order, and what its memory gives away.
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "engine/sim/address_space.h"
#include "engine/sim/memory.h"
#include "kernels/ops/accumulate.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

// A gradient is produced on one stream and accumulated on another; `waits` is the edge between
// them.
std::vector<float> accumulated(const SimOptions& options, bool waits) {
  Device device(open_sim(options));
  const Stream produce(device, "produce"), accumulate(device, "accumulate");
  const Event ready(device);
  const Floats g(device, 8), acc(device, 8);
  write(produce, g, 1);
  produce.synchronize();
  accumulate.submit(ZeroGradient{.acc = acc.row()});
  write(produce, g, 3);
  produce.record(ready);
  if (waits) accumulate.wait(ready);
  accumulate.submit(AccumulateGradient{.g = g.row(), .acc = acc.row()});
  return read(accumulate, acc);
}

TEST(Sim, AMissingWaitChangesTheBitsUnderLazyAndIsSilentUnderProgram) {
  const std::vector<float> right(8, 3.0f);
  for (const Policy policy : all_policies())
    EXPECT_EQ(accumulated({.policy = policy}, true), right);
  EXPECT_EQ(accumulated({.policy = Policy::program}, false), right);
  EXPECT_NE(accumulated({.policy = Policy::lazy}, false), right);
}

TEST(Sim, SomeSeedOfRandomAndOfPctFindsTheMissingWait) {
  for (const Policy policy : {Policy::random, Policy::pct}) {
    std::set<float> seen;
    for (std::uint64_t seed = 1; seed <= 40; ++seed)
      seen.insert(accumulated({.policy = policy, .seed = seed}, false)[0]);
    EXPECT_EQ(seen, (std::set<float>{1.0f, 3.0f}));
  }
}

// As text: whether equal literals of two translation units are one address is the linker's choice.
std::string told(const std::vector<SimStep>& trace) {
  std::string text;
  for (const SimStep& step : trace) text += std::to_string(step.stream) + " " + step.what + ", ";
  return text;
}

// Three streams write what they like; only the order tells them apart.
std::vector<SimStep> order(const SimOptions& options) {
  std::vector<SimStep> trace;
  SimOptions traced = options;
  traced.trace = &trace;
  Device device(open_sim(traced));
  const std::vector<Floats> x = [&] {
    std::vector<Floats> list;
    for (int i = 0; i < 3; ++i) list.emplace_back(device, 4);
    return list;
  }();
  std::vector<Stream> streams;
  for (const char* name : {"a", "b", "c"}) streams.emplace_back(device, name);
  for (int i = 0; i < 12; ++i)
    streams[static_cast<std::size_t>(i % 3)].fill(x[static_cast<std::size_t>(i % 3)].data(), 1, 16);
  for (const Stream& stream : streams) stream.synchronize();
  return trace;
}

TEST(Sim, EqualSeedsGiveEqualSchedulesAndDifferentSeedsDifferentOnes) {
  for (const Policy policy : {Policy::random, Policy::pct}) {
    std::set<std::string> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const std::vector<SimStep> trace = order({.policy = policy, .seed = seed});
      EXPECT_EQ(trace, order({.policy = policy, .seed = seed}));
      ASSERT_EQ(trace.size(), 12u);
      std::string text;
      for (const SimStep& step : trace) text += static_cast<char>('a' + step.stream);
      seen.insert(text);
    }
    EXPECT_GE(seen.size(), 4u);
  }
}

TEST(Sim, ProgramRunsInTheOrderOfSubmission) {
  const std::vector<SimStep> trace = order({.policy = Policy::program});
  ASSERT_EQ(trace.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(trace[i].stream, static_cast<int>(i % 3));
}

TEST(Sim, NothingRunsAtSubmitAndASyncRunsNoMoreThanItMust) {
  std::vector<SimStep> trace;
  Device device(open_sim({.policy = Policy::lazy, .trace = &trace}));
  const Stream a(device, "a"), b(device, "b"), c(device, "c");
  const Event e(device);
  const Floats x(device, 4);
  a.fill(x.data(), 1, 16);
  a.record(e);
  a.fill(x.data(), 2, 16);
  b.wait(e);
  b.fill(x.data(), 3, 16);
  c.fill(x.data(), 4, 16);
  EXPECT_EQ(trace.size(), 0u);
  b.synchronize();
  EXPECT_EQ(told(trace), "0 fill, 1 fill, ");
}

// Each graph waits in two places for the event that the graph launched before it has recorded: the
// last one has 2^60 ways back to the first.
TEST(Sim, AHostWaitsForAChainOfGraphsInNoMoreStepsThanTheyHave) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Event latest(device);
  const Floats x(device, 4);
  std::vector<Graph> graphs;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 60; ++i) {
    streams.push_back(std::make_unique<Stream>(device, "side"));
    const Stream& side = *streams.back();
    side.begin_capture();
    side.wait(latest, true);
    side.fill(x.data(), 0, x.bytes());
    side.wait(latest, true);
    side.fill(x.data(), static_cast<std::uint8_t>(i), x.bytes());
    side.record(latest, true);
    graphs.push_back(side.end_capture());
    side.launch(graphs.back());
  }
  latest.synchronize();
  EXPECT_EQ(std::bit_cast<std::uint32_t>(read(*streams.back(), x)[0]), 0x3b3b3b3bu);
}

TEST(Sim, LazyRunsTheLatestStreamFirstAmongWhatIsNeeded) {
  std::vector<SimStep> trace;
  Device device(open_sim({.policy = Policy::lazy, .trace = &trace}));
  const Stream a(device, "a"), b(device, "b"), join(device, "join");
  const Event ea(device), eb(device);
  const Floats x(device, 4);
  a.fill(x.data(), 1, 16);
  a.record(ea);
  b.fill(x.data(), 2, 16);
  b.record(eb);
  join.wait(ea);
  join.wait(eb);
  join.synchronize();
  EXPECT_EQ(told(trace), "1 fill, 0 fill, ");
}

TEST(Sim, AWaitIsForTheLatestRecordAtTheCall) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Stream a(device, "a"), b(device, "b");
  const Event e(device);
  const Floats x(device, 1), y(device, 1);
  write(a, x, 1);
  a.record(e);
  b.wait(e);
  b.copy(y.data(), x.data(), 4, CopyKind::device_to_device);
  write(a, x, 2);
  a.record(e);  // Too late for the wait above.
  EXPECT_EQ(read(b, y)[0], 1.0f);
}

TEST(Sim, AWaitForAnEventNeverRecordedIsNone) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Stream a(device, "a");
  const Event e(device);
  a.wait(e);
  a.synchronize();
  e.synchronize();
  EXPECT_TRUE(e.finished());
}

TEST(Sim, APinnedSourceIsReadWhenTheCopyRunsAPageableOneAtTheCall) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Stream a(device, "a");
  const Floats x(device, 1), y(device, 1);
  const PinnedBuffer pinned(device, 4);
  float& from_pinned = *static_cast<float*>(pinned.data());
  float from_pageable = 1;
  from_pinned = 1;
  a.copy(x.data(), &from_pinned, 4, CopyKind::host_to_device);
  a.copy(y.data(), &from_pageable, 4, CopyKind::host_to_device);
  from_pinned = from_pageable = 2;
  EXPECT_EQ(read(a, x)[0], 2.0f);
  EXPECT_EQ(read(a, y)[0], 1.0f);
}

TEST(Sim, ACopyToPageableMemoryIsDoneAtReturnOneToPinnedMemoryIsNot) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Stream a(device, "a");
  const Floats x(device, 1);
  write(a, x, 5);
  const PinnedBuffer pinned(device, 4);
  float& to_pinned = *static_cast<float*>(pinned.data());
  to_pinned = 0;
  a.copy(&to_pinned, x.data(), 4, CopyKind::device_to_host);
  EXPECT_EQ(to_pinned, 0.0f);
  float to_pageable = 0;
  a.copy(&to_pageable, x.data(), 4, CopyKind::device_to_host);
  EXPECT_EQ(to_pageable, 5.0f);
  EXPECT_EQ(to_pinned, 5.0f);
}

TEST(Sim, APollSeesWorkUnfinishedAndThenFinished) {
  for (const Policy policy : {Policy::lazy, Policy::random, Policy::pct}) {
    Device device(open_sim({.policy = policy}));
    const Stream a(device, "a");
    const Event e(device);
    const Floats x(device, 4);
    for (int i = 0; i < 3; ++i) a.fill(x.data(), 1, 16);
    a.record(e);
    EXPECT_FALSE(e.finished());
    int polls = 1;
    while (!e.finished()) ++polls;
    EXPECT_EQ(polls, 3);
    EXPECT_TRUE(a.finished());
  }
}

TEST(Sim, MemoryIsASignallingNanBeforeTheFirstWriteAndAfterTheFree) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Stream a(device, "a");
  Floats to(device, 2);
  const float* stale = nullptr;
  {
    const Floats x(device, 2);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data()) % 256, 0u);
    stale = x.data();
    for (const float v : read(a, x)) EXPECT_EQ(std::bit_cast<std::uint32_t>(v), SimMemory::kFresh);
    write(a, x, 1);
    a.synchronize();
  }
  a.copy(to.data(), stale, 8, CopyKind::device_to_device);
  for (const float v : read(a, to)) {
    EXPECT_TRUE(std::isnan(v));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(v), SimMemory::kFreed);
  }
}

// A read past its memory meets the same neighbour in each run: such a failure is replayed as it was
// found.
TEST(Sim, AddressesFollowFromTheOrderOfCalls) {
  const auto addresses = [](Device& device) {
    std::vector<const void*> list;
    const DeviceBuffer first(device, 1000);
    for (const int bytes :
         {40, 80 << 20, 80 << 20, 40}) {  // More than what is kept after it was freed.
      const DeviceBuffer buffer(device, static_cast<std::size_t>(bytes));
      const PinnedBuffer pinned(device, static_cast<std::size_t>(bytes));
      list.insert(list.end(), {first.data(), buffer.data(), pinned.data()});
    }
    return list;
  };
  std::vector<const void*> want;
  {
    Device device(open_sim());
    want = addresses(device);
  }
  const std::vector<char> other(1 << 20);  // For the process.
  Device device(open_sim()), beside(open_sim());
  EXPECT_EQ(addresses(device), want);
  const DeviceBuffer here(device, 1000), there(beside, 1000);
  EXPECT_NE(here.data(), there.data());
}

TEST(Sim, ASpaceIsAsNewWhateverWasThereBefore) {
  constexpr std::size_t kWritten = 1 << 20;
  const std::byte* was = nullptr;
  {
    AddressSpace space;
    std::byte* const block = space.take(kWritten);
    std::fill_n(block, 2 * kWritten, std::byte{7});  // Beyond its end too.
    was = block;
  }
  AddressSpace space;
  const std::byte* const block = space.take(1);
  EXPECT_EQ(block, was);
  EXPECT_TRUE(
      std::all_of(block, block + 2 * kWritten, [](std::byte b) { return b == std::byte{}; }));
}

TEST(Sim, ABrokenRedZoneShowsAtTheNextSynchronisation) {
  for (const std::ptrdiff_t offset : {-1, 5, 8, 200}) {  // The block has five bytes.
    Device device(open_sim({.policy = Policy::lazy}));
    const Stream a(device, "a");
    const DeviceBuffer x(device, 5);
    a.fill(static_cast<std::byte*>(x.data()) + offset, 7, 1);
    try {
      a.synchronize();
      FAIL() << offset;
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.code(), "cudaErrorIllegalAddress");
      EXPECT_NE(std::string(error.what()).find("red zone"), std::string::npos) << error.what();
    }
  }
}

TEST(Sim, ABrokenRedZoneOfFreedMemoryShowsAtTheNextCall) {
  Device device(open_sim({.policy = Policy::lazy}));
  const Stream a(device, "a");
  {
    const DeviceBuffer x(device, 5);
    a.fill(static_cast<std::byte*>(x.data()) + 5, 7, 1);
  }
  EXPECT_EQ(code_of([&] { a.synchronize(); }), "cudaErrorIllegalAddress");
}

TEST(SimDeathTest, ABrokenRedZoneThatNobodyHeardOfAborts) {
  const auto leave = [] {
    const std::unique_ptr<Backend> backend = open_sim({.policy = Policy::lazy});
    BackendStream* a = backend->create_stream("a");
    backend->fill(a, static_cast<std::byte*>(backend->allocate(4)) + 4, 7, 1);
  };
  EXPECT_DEATH(leave(), "red zone");
}

TEST(Sim, MemoryIsCounted) {
  Device device(open_sim());
  const std::size_t before = device.backend().memory_in_use();
  {
    const DeviceBuffer x(device, 1000), none(device, 0);
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(device.backend().memory_in_use(), before + 1000);
  }
  EXPECT_EQ(device.backend().memory_in_use(), before);
  EXPECT_EQ(device.backend().memory_high_water(), before + 1000);
  EXPECT_EQ(code_of([&] { DeviceBuffer(device, SIZE_MAX / 4); }), "cudaErrorMemoryAllocation");
}

TEST(Sim, StreamOrderedMemoryIsPoisonedWhenTheStreamGetsThere) {
  const std::unique_ptr<Backend> backend = open_sim({.policy = Policy::lazy});
  BackendStream* a = backend->create_stream("a");
  auto* x = static_cast<std::uint32_t*>(backend->allocate_async(a, 4));
  backend->fill(a, x, 0, 4);
  backend->release_async(a, x);
  EXPECT_EQ(*x, SimMemory::kFresh);
  backend->synchronize(a);
  EXPECT_EQ(*x, SimMemory::kFreed);
  EXPECT_EQ(backend->memory_in_use(), 0u);
}

}  // namespace
}  // namespace lockstep::test
