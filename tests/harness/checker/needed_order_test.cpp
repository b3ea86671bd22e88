// The judge of order that nothing needs: small programs on the engine's streams, and planted faults
// that change no bit, in scenarios without a row of costs.
#include "harness/checker/needed_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/device.h"
#include "engine/sim/schedule.h"
#include "harness/checker/checker.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "kernels/ops/accumulate.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two buffers with a value, the streams of an engine, and pinned memory.
struct Bench {
  explicit Bench(std::optional<std::int64_t> max_inflight = {}, bool captured_copies = false,
                 bool gradient_slots = false)
      : Bench({.max_inflight = max_inflight,
               .captured_copies = captured_copies,
               .gradient_slots = gradient_slots,
               .stretch_of_layer = {0, 1, 2, 3, 4, 5, 6, 7}}) {}
  explicit Bench(const DeclaredOrder& declared) : order(declared) {
    for (const DeviceBuffer* buffer : {&x, &y}) compute.fill(buffer->data(), 0, kBytes);
    compute.synchronize();
  }
  static constexpr std::size_t kBytes = 256;
  NeededOrder order;
  Checker checker{{.stop = true, .dropped = {}, .needed = &order}};
  Device device{open_sim({.policy = SimOptions::Policy::program, .trace = nullptr}), &checker};
  Stream compute{device, "compute"}, out{device, "d2h"}, back{device, "h2d"};
  DeviceBuffer x{device, kBytes}, y{device, kBytes};
  PinnedBuffer host{device, kBytes}, other{device, kBytes};
  Event fork{device, "fork"}, first{device, "first"}, second{device, "second"};

  void layer(int number) {
    device.place = {.step = 0, .microbatch = 0, .layer = number, .part = "mlp"};
  }
  void work(const DeviceBuffer& on) { compute.fill(on.data(), 0, kBytes); }
  void copy_out(const DeviceBuffer& from, const PinnedBuffer& to, const Event& done) {
    out.copy(to.data(), from.data(), kBytes, CopyKind::device_to_host);
    out.record(done);
  }
  void copy_back(const Event& done) {
    back.copy(x.data(), host.data(), kBytes, CopyKind::host_to_device);
    back.record(done);
  }
  void forks(const Stream& stream) {
    compute.record(fork);
    stream.wait(fork);
  }
};

// The copy leaves behind layer 0, or behind layer 1, which has nothing to do with it.
std::string copy_behind(int layers) {
  Bench bench;
  for (int layer = 0; layer < 2; ++layer) {
    bench.layer(layer);
    bench.work(layer == 0 ? bench.x : bench.y);
    if (layer + 1 == layers) bench.compute.record(bench.fork);
  }
  bench.out.wait(bench.fork);
  bench.copy_out(bench.x, bench.host, bench.first);
  return bench.order.finding();
}

TEST(NeededOrder, ACopyOutWaitsForItsTensorAlone) {
  EXPECT_EQ(copy_behind(1), "");
  EXPECT_THAT(copy_behind(2), AllOf(HasSubstr("copy of 256 bytes"),
                                    HasSubstr("on stream d2h is ordered after fill"),
                                    HasSubstr("layer 1"), HasSubstr("does not need")));
}

void two_copies_leave(Bench& bench) {
  bench.layer(0);
  bench.work(bench.x);
  bench.work(bench.y);
  bench.forks(bench.out);
  bench.copy_out(bench.x, bench.host, bench.first);
  bench.copy_out(bench.y, bench.other, bench.second);
}

// Two copies leave, one of which may be under way; compute waits for the one or the other.
std::string throttled(bool for_the_first, std::optional<std::int64_t> max_inflight) {
  Bench bench(max_inflight);
  two_copies_leave(bench);
  bench.compute.wait(for_the_first ? bench.first : bench.second);
  DeviceBuffer z(bench.device, Bench::kBytes);
  bench.layer(1);
  bench.work(z);
  std::string found = bench.order.finding();
  bench.compute.synchronize();
  return found;
}

TEST(NeededOrder, TheThrottleWaitsForTheOldestCopy) {
  EXPECT_EQ(throttled(true, 1), "");
  EXPECT_THAT(throttled(false, 1), HasSubstr("on stream compute is ordered after copy"));
  EXPECT_EQ(throttled(false, 0), "");
  EXPECT_THAT(throttled(true, {}), HasSubstr("on stream compute is ordered after copy"));
}

TEST(NeededOrder, NoMoreCopiesThanTheScenarioAllows) {
  Bench bench(1);
  two_copies_leave(bench);
  DeviceBuffer z(bench.device, Bench::kBytes);
  bench.layer(1);
  bench.work(z);
  EXPECT_THAT(bench.order.finding(), HasSubstr("2 groups of copies to the host may be under way"));
  EXPECT_EQ(bench.order.most_copies(), 2);
  bench.compute.synchronize();
}

// Two units reduce one behind the other; compute waits for the first one or the second, and
// overwrites what neither of them read.
std::string waits_for_a_slot(bool of_the_first, bool gradient_slots) {
  Bench bench({}, false, gradient_slots);
  const Stream reduce(bench.device, "reduce");
  const auto unit = [&](int layer, const DeviceBuffer& gradient, const Event& done) {
    bench.layer(layer);
    bench.work(gradient);
    bench.forks(reduce);
    reduce.fill(gradient.data(), 0, Bench::kBytes);
    reduce.record(done);
  };
  unit(3, bench.x, bench.first);
  unit(2, bench.y, bench.second);
  bench.compute.wait(of_the_first ? bench.first : bench.second);
  DeviceBuffer z(bench.device, Bench::kBytes);
  bench.layer(1);
  bench.work(z);
  std::string found = bench.order.finding();
  bench.compute.synchronize();
  reduce.synchronize();
  return found;
}

TEST(NeededOrder, ASlotOfGradientsIsUsedAnewAsAWhole) {
  EXPECT_EQ(waits_for_a_slot(true, true), "");
  EXPECT_THAT(waits_for_a_slot(true, false), HasSubstr("on stream compute is ordered after fill"));
  EXPECT_THAT(waits_for_a_slot(false, true), HasSubstr("on stream compute is ordered after fill"));
}

// Layer 1 runs between the call of the copy back and its reader in layer 0, or does not.
std::string copied_back(bool beside_a_layer) {
  Bench bench;
  bench.layer(0);
  bench.work(bench.x);
  bench.forks(bench.out);
  bench.copy_out(bench.x, bench.host, bench.first);
  bench.back.wait(bench.first);
  bench.layer(1);
  if (!beside_a_layer) bench.work(bench.y);
  bench.forks(bench.back);
  bench.copy_back(bench.second);
  if (beside_a_layer) bench.work(bench.y);
  bench.layer(0);
  bench.compute.wait(bench.second);
  bench.work(bench.x);
  return bench.order.finding();
}

TEST(NeededOrder, ACopyBackRunsBesideSomething) {
  EXPECT_EQ(copied_back(true), "");
  EXPECT_THAT(copied_back(false), HasSubstr("comes back beside nothing"));
}

// Layers 0 and 1 are a piece without the head, 2 and 3 another one. Layer 1 copies back beside
// nothing, behind a pass that ends with layer `before`.
std::string copied_back_for_a_piece(int before) {
  Bench bench({.piece_of_layer = {0, 0, 1, 1},
               .ends_a_piece = {false, true, false, true},
               .stretch_of_layer = {0, 1, 2, 3}});
  bench.layer(1);
  bench.work(bench.x);
  bench.forks(bench.out);
  bench.copy_out(bench.x, bench.host, bench.first);
  bench.back.wait(bench.first);
  bench.layer(before);
  bench.work(bench.y);
  bench.forks(bench.back);
  bench.layer(1);
  bench.copy_back(bench.second);
  bench.compute.wait(bench.second);
  bench.work(bench.x);
  return bench.order.finding();
}

TEST(NeededOrder, ThePassOfAnotherPieceHidesWhatAPieceReadsFirst) {
  EXPECT_EQ(copied_back_for_a_piece(0), "");
  EXPECT_THAT(copied_back_for_a_piece(2), HasSubstr("comes back beside nothing"));
}

// Two copies of different tensors leave, the second on a stream of its own, behind the first.
std::string copies_in_turn(bool captured) {
  Bench bench({}, captured);
  const Stream beside(bench.device, "d2h");
  bench.layer(0);
  bench.work(bench.x);
  bench.work(bench.y);
  bench.forks(bench.out);
  bench.forks(beside);
  bench.copy_out(bench.x, bench.host, bench.first);
  beside.wait(bench.first);
  beside.copy(bench.other.data(), bench.y.data(), Bench::kBytes, CopyKind::device_to_host);
  beside.synchronize();
  return bench.order.finding();
}

// Compute of layer 1 has nothing to do with that of layer 0, which a stream of its own runs.
std::string compute_in_turn(bool captured) {
  Bench bench({}, captured);
  const Stream beside(bench.device, "compute");
  bench.layer(0);
  beside.fill(bench.x.data(), 0, Bench::kBytes);
  beside.record(bench.first);
  bench.layer(1);
  bench.compute.wait(bench.first);
  bench.work(bench.y);
  bench.compute.synchronize();
  return bench.order.finding();
}

TEST(NeededOrder, ComputeAndCopiesAreQueuesWhereGraphsHaveCopies) {
  EXPECT_EQ(copies_in_turn(true), "");
  EXPECT_THAT(copies_in_turn(false), HasSubstr("on stream d2h is ordered after copy"));
  EXPECT_EQ(compute_in_turn(true), "");
  EXPECT_THAT(compute_in_turn(false), HasSubstr("on stream compute is ordered after fill"));
}

// A scenario of the library that lies in no folder has no row.
CaseResult without_a_row(const std::string& name, const std::string& fault) {
  std::vector<ScenarioError> errors;
  std::vector<PlannedCase> cases = plan_file(library_file(name), true, errors);
  EXPECT_FALSE(cases.empty());
  Scenario scenario = cases.front().scenario;
  scenario.folder = "/nowhere";
  RunOptions options;
  options.planted.engine = fault;
  return run_in_worker(scenario, options, {.fork = true, .timeout_s = 60});
}

struct NeedlessFault {
  const char *fault, *scenario, *words;
};

class NeedlessOrder : public testing::TestWithParam<NeedlessFault> {};

TEST_P(NeedlessOrder, IsFoundWithoutARow) {
  const NeedlessFault& one = GetParam();
  EXPECT_EQ(without_a_row(one.scenario, "").verdict, Verdict::holds);
  const CaseResult result = without_a_row(one.scenario, one.fault);
  EXPECT_EQ(result.judge, JudgeKind::costs) << result.reason;
  EXPECT_THAT(result.reason, HasSubstr(one.words));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, NeedlessOrder,
    testing::Values(
        NeedlessFault{"gather-waits-for-all-of-compute", "fsdp-odd-unit", "on stream gather"},
        NeedlessFault{"experts-gathered-behind-all-of-compute", "experts-apart-sharded",
                      "on stream gather"},
        NeedlessFault{"weights-gathered-behind-every-update", "fsdp-grads-eager",
                      "on stream gather"},
        NeedlessFault{"throttle-waits-for-the-newest-copy", "offload-full-iteration-fallback",
                      "on stream compute"},
        NeedlessFault{"throttle-waits-for-the-last-copy", "offload-full-iteration-fallback",
                      "on stream compute"},
        NeedlessFault{"throttle-in-graphs-waits-for-a-newer-copy", "offload-captured-ahead",
                      "on stream compute"},
        NeedlessFault{"delayed-offload-waits-for-all-of-compute", "offload-experts-delayed",
                      "on stream d2h"},
        NeedlessFault{"captured-gradient-waits-for-inputs", "stages-full-iteration-offloaded",
                      "is ordered after receive of"},
        NeedlessFault{"reload-begins-at-its-reader", "offload-eager", "beside nothing"},
        NeedlessFault{"reload-waits-for-its-own-pass", "offload-chunks-ahead", "beside nothing"},
        NeedlessFault{"reload-waits-for-its-own-pass", "stages-offloaded", "beside nothing"}));

}  // namespace
}  // namespace lockstep
