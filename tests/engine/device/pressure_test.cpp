// Delays and poison: they change no bit where the edges are right, and show what luck hides where
// they are not.
#include "engine/device/pressure.h"

#include <bit>

#include "engine/data/loader.h"
#include "kernels/core/fault.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"
#include "tests/engine/device/on_sim.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

Pressure delays(std::vector<StreamDelay> list) { return {.delays = std::move(list)}; }

// One stream writes 3 over 1, another copies it; `waits` is the edge between them.
float copied(const SimOptions& options, bool waits, Pressure pressure) {
  Device device(open_sim(options), nullptr, std::move(pressure));
  const Stream produce(device, "produce"), consume(device, "consume");
  const Event ready(device);
  const Floats x(device, 8), y(device, 8);
  write(produce, x, 1);
  produce.synchronize();
  write(produce, x, 3);
  produce.record(ready);
  if (waits) consume.wait(ready);
  consume.copy(y.data(), x.data(), x.bytes(), CopyKind::device_to_device);
  return read(consume, y)[0];
}

TEST(Pressure, ADelayShowsAMissingWaitThatTheOrderOfTheCallsHides) {
  const SimOptions program{.policy = Policy::program, .trace = nullptr};
  EXPECT_EQ(copied(program, false, {}), 3.0f);
  EXPECT_EQ(copied(program, false, delays({{"produce", 100}})), 1.0f);
  EXPECT_EQ(copied(program, false, delays({{"consume", 100}})), 3.0f);
  EXPECT_EQ(copied(program, false, delays({{"elsewhere", 100}})), 3.0f);
  EXPECT_EQ(copied(program, false, delays({{"produce", 100, 0}})),
            1.0f);  // The device is at work for rank 0.
  EXPECT_EQ(copied(program, false, delays({{"produce", 100, 1}})), 3.0f);
}

TEST(Pressure, DelaysChangeNothingWhereTheEdgesAreRight) {
  for (const Policy policy : all_policies()) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      Pressure pressure = delays({{"produce", 50}, {"consume", 7}});
      pressure.seed = seed;
      EXPECT_EQ(
          copied({.policy = policy, .seed = seed, .trace = nullptr}, true, std::move(pressure)),
          3.0f);
    }
  }
}

// A fork in a graph whose side has no way back to what reads it, but for the join at the end.
// `nodes`: delays that the graph holds.
float forked(bool joined_before_use, std::vector<StreamDelay> list, std::int64_t nodes,
             std::vector<SimStep>* trace = nullptr) {
  Device device(open_sim({.policy = Policy::program, .trace = trace}), nullptr,
                delays(std::move(list)));
  const Stream a(device, "a"), side(device, "side");
  const Event fork(device), join(device);
  const Floats x(device, 8), y(device, 8);
  write(a, x, 1);
  a.synchronize();
  a.begin_capture();
  a.record(fork);
  side.wait(fork);
  side.submit(ZeroGradient{.acc = x.row()});
  side.record(join);
  if (joined_before_use) a.wait(join);
  a.copy(y.data(), x.data(), x.bytes(), CopyKind::device_to_device);
  if (!joined_before_use) a.wait(join);
  const Graph graph = a.end_capture();
  EXPECT_EQ(graph.ledger().delays, nodes);
  const std::int64_t before = device.counters.delays;
  a.launch(graph);
  a.synchronize();
  EXPECT_GE(device.counters.delays, before + nodes);
  return read(a, y)[0];
}

TEST(Pressure, DelaysAreNodesOfGraphsAndNoEntriesOfTheirLedgers) {
  std::vector<SimStep> plain, delayed;
  EXPECT_EQ(forked(true, {}, 0, &plain), 0.0f);
  EXPECT_EQ(forked(true, {{"graph", 40}}, 2, &delayed), 0.0f);
  EXPECT_EQ(plain, delayed);
  std::set<float> seen;
  for (std::int64_t most = 1; most <= 64; most *= 2)
    seen.insert(forked(false, {{"graph", most}}, 2));
  EXPECT_EQ(seen, (std::set<float>{0.0f, 1.0f}));
}

// The stream on which a capture was begun is delayed by its launches.
TEST(Pressure, ADelayOfAStreamThatJoinsACaptureIsInTheGraph) {
  EXPECT_EQ(forked(false, {}, 0), 0.0f);
  EXPECT_EQ(forked(false, {{"side", 64}}, 1), 1.0f);
  EXPECT_EQ(forked(true, {{"side", 64}}, 1), 0.0f);
  EXPECT_EQ(forked(true, {{"a", 64}}, 0), 0.0f);
}

TEST(Pressure, TheHostWaitsForDelaysAndTheyAreCounted) {
  for (const Policy policy : all_policies()) {
    Device device(open_sim({.policy = policy, .trace = nullptr}), nullptr, delays({{"a", 100000}}));
    const Stream a(device, "a");
    const Event e(device);
    const Floats x(device, 4);
    for (int i = 0; i < 5; ++i) a.fill(x.data(), 1, 16);
    a.record(e);
    while (!e.finished()) {
    }
    a.fill(x.data(), 2, 16);
    a.synchronize();
    EXPECT_EQ(device.counters.delays, 6);
  }
}

TEST(Pressure, PoisonIsASignallingNanInBothPrecisions) {
  Device device(open_sim());
  const Stream a(device, "a");
  const Floats x(device, 4);
  write(a, x, 1);
  a.submit(poison(x.data(), 12));
  const std::vector<float> values = read(a, x);
  for (int i = 0; i < 3; ++i) {
    const auto word = std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i)]);
    EXPECT_EQ(word & 0x7fc00000u, 0x7f800000u);  // All exponent bits, not the quiet bit,
    EXPECT_NE(word & 0x003fffffu, 0u);           // and a payload.
    EXPECT_EQ(word >> 16, word & 0xffffu);
  }
  EXPECT_EQ(values[3], 1.0f);
  EXPECT_EQ(device.counters.bytes_poisoned, 12);
}

TEST(Pressure, StagingMemoryHasNoValueBeforeEachUse) {
  Device device(open_sim({.policy = Policy::program, .trace = nullptr}));
  const Stream compute(device, "compute");
  Loader loader(device, {.rows = 16}, 4, 1, true);
  const HostPackedBatch pack{
      std::vector<std::int32_t>(16, 5), std::vector<std::int32_t>(16, 6), {16}, {0}, 16};
  loader.load_state({}, true);
  loader.load(0, pack, false, compute);
  const std::int64_t bytes = (2 * 16 + 2 * 4 + 1) * 4;
  EXPECT_EQ(loader.bytes_poisoned(), bytes + static_cast<std::int64_t>(sizeof(StepState)));
  loader.wait_for(0, compute);
  std::int32_t tokens[16];
  compute.copy(tokens, loader.inputs(0).tokens.data, 64, CopyKind::device_to_host);
  EXPECT_EQ(tokens[15], 5);
}

}  // namespace
}  // namespace lockstep::test
