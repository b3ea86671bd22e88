// The checker's parts, each kind of hazard, and what its sentences say.
#include "harness/checker/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "engine/train/trainer.h"
#include "harness/checker/live_blocks.h"
#include "harness/checker/redundant_edges.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/linear.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

std::vector<HazardKind> kinds(const Checker& checker) {
  std::vector<HazardKind> list;
  for (const Hazard& h : distinct(checker.hazards())) list.push_back(h.kind);
  return list;
}
using Kinds = std::vector<HazardKind>;

// Two streams and two buffers with a value.
struct Bench {
  explicit Bench(bool stop = false) : checker({.stop = stop, .dropped = {}}) {
    for (const Floats* f : {&x, &y}) compute.fill(f->data(), 0, f->bytes());
    compute.synchronize();
  }
  Checker checker;
  Device device{open_sim({.policy = Policy::program, .trace = nullptr}), &checker};
  Stream compute{device, "compute"}, loader{device, "loader"};
  Event event{device};
  Floats x{device, 64}, y{device, 64};
  PinnedBuffer staging{device, 256};

  void add(const Stream& stream, Tensor<float> from, Tensor<float> to) {
    stream.submit(AccumulateGradient{.g = from, .acc = to});
  }
  void stage() { device.host_writes(staging.data(), 256); }
  void load(const Stream& stream) {
    stream.copy(x.data(), staging.data(), 256, CopyKind::host_to_device);
  }
};

std::set<std::int64_t> bytes_of(const Box& b) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < b.rows; ++i) {
    for (std::int64_t k = 0; k < b.width; ++k) all.insert(b.base + i * b.pitch + k);
  }
  return all;
}

TEST(LiveBlocks, KnowsEveryByteAsAListOfBlocksWould) {
  std::mt19937_64 random(2);
  std::vector<std::byte> memory(64);
  std::vector<int> owner(memory.size(), -1);
  LiveBlocks<int, -1> blocks;
  for (int number = 0; number < 3000; ++number) {
    const std::size_t first = random() % memory.size();
    if (owner[first] >= 0) {
      const int gone = owner[first];
      blocks.remove(&memory[static_cast<std::size_t>(std::find(owner.begin(), owner.end(), gone) -
                                                     owner.begin())]);
      std::replace(owner.begin(), owner.end(), gone, -1);
    } else {
      std::size_t end = first;
      while (end < memory.size() && end < first + 9 && owner[end] < 0) owner[end++] = number;
      blocks.add(&memory[first], end - first, number);
    }
    for (std::size_t at = 0; at < memory.size(); ++at) ASSERT_EQ(blocks.at(&memory[at]), owner[at]);
  }
}

TEST(Boxes, MeetAndContainAsTheirBytesDo) {
  std::mt19937_64 random(1);
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  const auto any = [&] { return box(below(20), below(5), below(6), below(9)); };
  int met = 0, held = 0;
  for (int i = 0; i < 50000; ++i) {
    const Box a = any(), b = any();
    const std::set<std::int64_t> in_a = bytes_of(a), in_b = bytes_of(b);
    bool meet = false, hold = true;
    for (const std::int64_t byte : in_b) meet |= in_a.contains(byte), hold &= in_a.contains(byte);
    ASSERT_EQ(overlap(a, b), meet)
        << a.base << " " << a.rows << " " << a.width << " " << a.pitch << ", " << b.base << " "
        << b.rows << " " << b.width << " " << b.pitch;
    ASSERT_EQ(contains(a, b), hold)
        << a.base << " " << a.rows << " " << a.width << " " << a.pitch << ", " << b.base << " "
        << b.rows << " " << b.width << " " << b.pitch;
    met += meet, held += hold && !in_b.empty();
  }
  EXPECT_GT(met, 5000);
  EXPECT_GT(held, 500);
}

// The harness looks at results before the program uses them: its read goes on, and the program's
// hazard is the one that is told.
TEST(Checker, TellsTheProgramsHazardRatherThanThatOfALook) {
  const auto told = [](bool program_reads) -> std::string {
    Bench bench(true);
    bench.stage();
    bench.load(bench.loader);
    bench.device.place = {.step = 3, .part = kLook};
    PinnedBuffer seen(bench.device, 256);
    bench.compute.copy(seen.data(), bench.x.data(), 256, CopyKind::device_to_host);
    EXPECT_TRUE(bench.checker.looked_too_early());
    bench.device.place = {.step = 3, .microbatch = 1, .layer = 2, .part = "qkv"};
    try {
      if (program_reads) bench.add(bench.compute, bench.x.row(), bench.y.row());
      bench.checker.throw_found();
    } catch (const EngineViolation& violation) {
      return violation.what();
    }
    return "";
  };
  EXPECT_THAT(told(true),
              testing::StartsWith("read after write: accumulate_gradient (qkv, layer 2, "
                                  "microbatch 1, step 3) on stream compute, which "
                                  "reads its `g`"));
  EXPECT_THAT(told(true), HasSubstr("(and "));
  EXPECT_THAT(told(false), HasSubstr("read after write: copy of 256 bytes (look, step 3)"));
}

// The program runs without judges too, and then nobody waits for it where they look.
TEST(Checker, WhatALookWaitsForTheProgramDoesNotKnow) {
  for (const bool looks : {true, false}) {
    Bench bench;
    std::optional<Stream> side(std::in_place, bench.device, "side");
    bench.add(*side, bench.x.row(), bench.y.row());
    bench.device.place.part = looks ? kLook : "step";
    side->synchronize();
    bench.device.place.part = "step";
    side.reset();
    EXPECT_EQ(kinds(bench.checker), looks ? Kinds{HazardKind::destroyed_in_use} : Kinds{});
  }
}

TEST(Checker, TheProgramGoesOnBehindALook) {
  Bench bench(true);
  bench.stage();
  bench.load(bench.loader);
  bench.loader.synchronize();
  bench.device.place.part = kLook;
  bench.device.host_reads(bench.staging.data(), 256);
  bench.device.place.part = "step";
  bench.stage();
  EXPECT_EQ(kinds(bench.checker), Kinds{});
}

// A look may be under way where the program, which is over, destroys what both have used.
TEST(Checker, AProgramNeedNotWaitForALook) {
  for (const bool looks : {true, false}) {
    Bench bench;
    std::optional<Stream> side(std::in_place, bench.device, "side");
    std::optional<Floats> seen(std::in_place, bench.device, 64);
    bench.add(*side, bench.x.row(), bench.y.row());
    side->synchronize();
    bench.device.place.part = looks ? kLook : "step";
    side->copy(seen->data(), bench.y.data(), 256, CopyKind::device_to_device);
    bench.device.place.part = "step";
    side.reset();
    seen.reset();
    EXPECT_EQ(kinds(bench.checker),
              looks ? Kinds{} : Kinds({HazardKind::destroyed_in_use, HazardKind::use_after_free}));
  }
}

TEST(Checker, FindsAReadThatDoesNotWaitForItsCopyAndSaysWhatToDo) {
  Bench bench;
  bench.stage();
  bench.device.place = {.step = 3, .microbatch = 1, .layer = 2, .part = "qkv"};
  bench.load(bench.loader);
  bench.add(bench.compute, bench.x.row(), bench.y.row());
  ASSERT_EQ(kinds(bench.checker), Kinds{HazardKind::read_after_write});
  EXPECT_EQ(text(bench.checker.hazards().front()),
            "read after write: accumulate_gradient (qkv, layer 2, microbatch 1, step 3) on stream "
            "compute, which reads "
            "its `g`, is not ordered after copy of 256 bytes (qkv, layer 2, microbatch 1, step 3) "
            "on stream loader, "
            "which writes its destination, although both touch bytes 0 to 255 of the 256-byte "
            "device allocation 0. "
            "Missing edge: loader -> compute. Record an event on loader after copy of 256 bytes, "
            "and wait for it on "
            "compute before "
            "accumulate_gradient.");
}

TEST(Checker, NamesTheEventThatWouldHaveDone) {
  Bench bench;
  bench.stage();
  bench.load(bench.loader);
  bench.loader.record(bench.event);
  bench.add(bench.compute, bench.x.row(), bench.y.row());
  ASSERT_EQ(kinds(bench.checker), Kinds{HazardKind::read_after_write});
  EXPECT_THAT(
      text(bench.checker.hazards().front()),
      HasSubstr(
          "Event 0 was recorded on loader after copy of 256 bytes: wait for it on compute before"));
}

TEST(Checker, IsContentWithTheEdge) {
  Bench bench;
  bench.stage();
  bench.load(bench.loader);
  bench.loader.record(bench.event);
  bench.compute.wait(bench.event);
  bench.add(bench.compute, bench.x.row(), bench.y.row());
  bench.compute.synchronize();
  EXPECT_EQ(kinds(bench.checker), Kinds{});
  EXPECT_EQ(bench.checker.checked(), 7);
}

TEST(Checker, SeesThatAnEventRecordedTooEarlyOrdersNothing) {
  Bench bench;
  bench.stage();
  bench.loader.record(bench.event);
  bench.load(bench.loader);
  bench.compute.wait(bench.event);
  bench.add(bench.compute, bench.x.row(), bench.y.row());
  EXPECT_EQ(kinds(bench.checker), Kinds{HazardKind::read_after_write});
}

TEST(Checker, FindsAnOverwriteOfWhatIsStillRead) {
  Bench bench;
  bench.stage();
  bench.add(bench.compute, bench.x.row(), bench.y.row());
  bench.load(bench.loader);
  EXPECT_EQ(kinds(bench.checker), Kinds{HazardKind::write_after_read});
  bench.loader.fill(bench.y.data(), 0, 4);
  EXPECT_EQ(kinds(bench.checker).back(), HazardKind::write_after_write);
}

TEST(Checker, FindsStagingMemoryRewrittenBeforeItsCopy) {
  Bench bench;
  bench.stage();
  bench.load(bench.loader);
  bench.loader.record(bench.event);
  bench.stage();
  ASSERT_EQ(kinds(bench.checker), Kinds{HazardKind::write_after_read});
  EXPECT_THAT(text(bench.checker.hazards().front()),
              HasSubstr("Event 0 was recorded on loader after copy of 256 bytes: synchronise with "
                        "it before the host's write"));
  Bench good;
  good.stage();
  good.load(good.loader);
  good.loader.record(good.event);
  good.event.synchronize();
  good.stage();
  EXPECT_EQ(kinds(good.checker), Kinds{});
}

TEST(Checker, KnowsThatColumnsOfOneBufferAreApart) {
  Bench bench;
  const Tensor<float> x = tensor(bench.x.data(), 8, 8), y = tensor(bench.y.data(), 8, 8);
  bench.add(bench.compute, x.columns(0, 3), y.columns(0, 3));
  bench.add(bench.loader, x.columns(3, 5), y.columns(3, 5));
  EXPECT_EQ(kinds(bench.checker), Kinds{});
  bench.add(bench.loader, x.columns(2, 1), y.columns(2, 1));
  EXPECT_EQ(kinds(bench.checker), Kinds{HazardKind::read_after_write});
}

TEST(Checker, FindsMemoryThatNobodyWrote) {
  Bench bench;
  const Floats fresh(bench.device, 64);
  bench.compute.fill(fresh.data(), 0, fresh.bytes());
  bench.compute.submit(poison(fresh.data(), 256));
  bench.compute.fill(fresh.data(), 0, 128);
  bench.add(bench.compute, tensor(fresh.data(), 1, 32), bench.y.row().columns(0, 32));
  EXPECT_EQ(kinds(bench.checker), Kinds{});
  bench.add(bench.compute, fresh.row(), bench.y.row());
  ASSERT_EQ(kinds(bench.checker), Kinds{HazardKind::use_before_write});
  EXPECT_THAT(text(bench.checker.hazards().front()),
              HasSubstr("Byte 128 has no value: it was poisoned before this use"));
}

TEST(Checker, FindsOperandsOutOfBoundsAndOperandsThatShareBytes) {
  Bench bench;
  const Floats large(bench.device, 65);
  bench.compute.fill(large.data(), 0, large.bytes());
  Checker checker({.stop = false, .dropped = {}});
  checker.on_call({AllocateCall{bench.x.data(), 256}});
  checker.on_call({FillCall{bench.x.data() + 1, 0, 256}, 0});
  EXPECT_EQ(kinds(checker), Kinds{HazardKind::out_of_bounds});
  EXPECT_THAT(text(checker.hazards().front()), HasSubstr("ends 4 bytes after its allocation"));
  checker.on_call({FillCall{bench.y.data(), 0, 4}, 0});
  EXPECT_EQ(checker.hazards().size(), 2u);
  bench.add(bench.compute, bench.y.row().columns(0, 32), bench.y.row().columns(16, 32));
  EXPECT_EQ(kinds(bench.checker), Kinds{HazardKind::overlap});
}

TEST(Checker, FindsMemoryFreedWhileItIsReadOrBeforeItIs) {
  Bench bench;
  auto extra = std::make_unique<Floats>(bench.device, 64);
  float* gone = extra->data();
  bench.compute.fill(gone, 0, 256);
  extra.reset();
  ASSERT_EQ(kinds(bench.checker), Kinds{HazardKind::use_after_free});
  EXPECT_THAT(text(bench.checker.hazards().front()),
              HasSubstr("synchronise with it before the host's release"));
  bench.checker.on_call({FillCall{gone, 0, 256}, bench.compute.id()});
  EXPECT_EQ(bench.checker.hazards().size(), 2u);
  EXPECT_EQ(bench.checker.hazards().back().kind, HazardKind::use_after_free);
}

TEST(Checker, FindsAGraphWhoseMemoryIsOfAnotherGeneration) {
  Checker checker({.stop = false, .dropped = {}});
  std::byte memory[64];
  const IssuedCall fill{FillCall{memory, 0, 64}, 0};
  const auto captured = std::make_shared<Ledger>();
  captured->append(fill);
  checker.on_call({CreateStreamCall{"compute"}, 0});
  checker.on_call({AllocateCall{memory, 64}});
  checker.on_call({BeginCaptureCall{}, 0});
  checker.on_call(fill);
  checker.on_call({EndCaptureCall{0, captured}, 0});
  checker.on_call({LaunchCall{0, captured}, 0});
  checker.on_call({SyncCall{}, 0});
  EXPECT_EQ(kinds(checker), Kinds{});
  checker.on_call({ReleaseCall{memory}});
  checker.on_call({AllocateCall{memory, 64}});  // The same address, as allocators like to give.
  checker.on_call({LaunchCall{0, captured}, 0, {.step = 5}});
  ASSERT_EQ(kinds(checker), Kinds{HazardKind::use_after_free});
  EXPECT_THAT(text(checker.hazards().front()),
              HasSubstr("fill of 64 bytes (step 5) in replay 1 of graph 0 on stream compute"));
  Work before;
  before.name = "fill";
  before.graph = 0;
  EXPECT_EQ(describe(before, "compute"), "fill at the capture of graph 0 on stream compute");
  EXPECT_THAT(text(checker.hazards().front()),
              HasSubstr("Another allocation, 1, has its address now"));
}

// Both branches of a fork write the same bytes: the missing edge is inside of the graph.
void capture_fork(Bench& bench, bool joined_between) {
  Event fork(bench.device), join(bench.device);
  bench.compute.begin_capture();
  bench.compute.record(fork);
  bench.loader.wait(fork);
  bench.loader.fill(bench.x.data(), 1, 256);
  bench.loader.record(join);
  if (joined_between) bench.compute.wait(join);
  bench.compute.fill(bench.x.data(), 1, 256);
  if (!joined_between) bench.compute.wait(join);
  const Graph graph = bench.compute.end_capture();
  EXPECT_EQ(kinds(bench.checker), Kinds{}) << "nothing runs at capture";
  bench.compute.launch(graph);
  bench.compute.launch(graph);
  bench.compute.synchronize();
}

TEST(Checker, FindsAMissingEdgeInsideOfAGraph) {
  Bench good;
  capture_fork(good, true);
  EXPECT_EQ(kinds(good.checker), Kinds{});
  Bench bad;
  capture_fork(bad, false);
  ASSERT_EQ(kinds(bad.checker), Kinds{HazardKind::write_after_write});
  EXPECT_THAT(text(bad.checker.hazards().front()),
              HasSubstr("While the graph is captured, record an event on loader after fill of 256 "
                        "bytes and wait for it on compute"));
}

TEST(Checker, FindsAnEdgeThatIsMissingAroundALaunch) {
  for (const bool external : {true, false}) {
    Bench bench;
    bench.compute.begin_capture();
    bench.compute.fill(bench.x.data(), 1, 256);
    if (external) bench.compute.record(bench.event, true);
    bench.compute.fill(bench.y.data(), 1, 256);
    const Graph graph = bench.compute.end_capture();
    bench.compute.launch(graph);
    if (!external) bench.compute.record(bench.event);
    bench.loader.wait(bench.event);
    bench.loader.fill(bench.x.data(), 1, 256);
    EXPECT_EQ(kinds(bench.checker), Kinds{});
    bench.loader.fill(bench.y.data(), 1, 256);  // Written after the external record.
    EXPECT_EQ(kinds(bench.checker), external ? Kinds{HazardKind::write_after_write} : Kinds{});
  }
}

TEST(Checker, StopsBeforeTheHazardousOpRuns) {
  Bench bench(true);
  bench.stage();
  std::fill_n(static_cast<float*>(bench.staging.data()), 64, 1.0f);
  bench.load(bench.loader);
  try {
    bench.add(bench.compute, bench.x.row(), bench.y.row());
    FAIL() << "the op was let through";
  } catch (const EngineViolation& violation) {
    EXPECT_EQ(violation.judge(), JudgeKind::hazard);
  }
  EXPECT_EQ(read(bench.compute, bench.y), std::vector<float>(64, 0.0f));
}

Graph captured_fill(Bench& bench, const Event* external = nullptr) {
  bench.compute.begin_capture();
  bench.compute.fill(bench.x.data(), 1, 256);
  if (external != nullptr) bench.compute.record(*external, true);
  return bench.compute.end_capture();
}

std::string first_hazard(const Bench& bench) {
  return bench.checker.hazards().empty() ? "" : text(bench.checker.hazards().front());
}

TEST(Checker, FindsAGraphDestroyedWhileItsLaunchMayRun) {
  for (const bool waits : {false, true}) {
    Bench bench;
    {
      const Graph graph = captured_fill(bench);
      bench.loader.launch(graph);
      bench.loader.launch(graph);
      if (waits) bench.loader.synchronize();
    }
    EXPECT_EQ(first_hazard(bench),
              waits ? ""
                    : "destroyed while in use: graph 0. It is not ordered after its replay 1 on "
                      "stream loader. Missing edge: loader -> the host. Record an event on loader "
                      "after its replay 1 on stream loader, and synchronise with it before graph 0 "
                      "is destroyed.");
  }
}

TEST(Checker, FindsAGraphDestroyedDuringACapture) {
  Bench bench;
  std::optional<Graph> graph = captured_fill(bench);
  bench.compute.begin_capture();
  graph.reset();
  bench.compute.abort_capture();
  EXPECT_EQ(kinds(bench.checker), Kinds{HazardKind::destroyed_in_use});
  EXPECT_THAT(first_hazard(bench), HasSubstr("A capture is under way on stream compute."));
}

TEST(Checker, FindsAnEventDestroyedBeforeItsRecordOrAWaitForItIsOver) {
  for (const bool waited : {false, true}) {
    for (const bool known : {false, true}) {
      Bench bench;
      {
        const Event event(bench.device, "loaded");
        bench.stage();
        bench.load(bench.loader);
        bench.loader.record(event);
        bench.compute.fill(bench.y.data(), 0, 256);
        if (waited) bench.compute.wait(event);
        if (!waited || !known) event.synchronize();
        if (!waited && !known) bench.loader.record(event), bench.load(bench.loader);
        if (!waited && !known) bench.loader.record(event);
        if (waited && known) bench.compute.synchronize();
      }
      if (known) {
        EXPECT_EQ(first_hazard(bench), "");
      } else {
        EXPECT_THAT(first_hazard(bench),
                    HasSubstr("event 1 (loaded). It is not ordered after its "
                              "last record and the waits for it. Missing "
                              "edge: " +
                              std::string(waited ? "compute" : "loader") + " -> the host."));
      }
    }
  }
}

TEST(Checker, FindsAnEventDestroyedBeforeTheGraphThatRecordsIt) {
  for (const bool graph_first : {true, false}) {
    Bench bench;
    std::optional<Event> event(bench.device);
    std::optional<Graph> graph = captured_fill(bench, &*event);
    bench.compute.launch(*graph);
    bench.compute.synchronize();
    if (graph_first) graph.reset();
    event.reset();
    EXPECT_EQ(first_hazard(bench), graph_first
                                       ? ""
                                       : "destroyed while in use: event 1 (event). Graph 0 records "
                                         "it or waits for it, and lives. Destroy the graph first.");
  }
}

TEST(Checker, FindsAStreamDestroyedWhileItWorks) {
  for (const bool waits : {false, true}) {
    Bench bench;
    {
      const Stream side(bench.device, "side");
      side.fill(bench.x.data(), 0, 256);
      if (waits) side.synchronize();
    }
    EXPECT_EQ(kinds(bench.checker), waits ? Kinds{} : Kinds{HazardKind::destroyed_in_use});
  }
}

TEST(Checker, FindsACommunicatorDestroyedBeforeTheGraphThatHoldsItsCalls) {
  for (const bool graph_first : {true, false}) {
    Checker checker({.stop = false, .dropped = {}});
    auto* const ranks = reinterpret_cast<BackendCommunicator*>(&checker);  // Never called.
    const auto captured = std::make_shared<Ledger>();
    captured->append({ExchangeCall{{ranks, CollectiveKind::all_reduce, {}, 0, 2}}, 0});
    checker.on_call({CreateStreamCall{"compute"}, 0});
    checker.on_call({CreateCommunicatorCall{ranks}});
    checker.on_call({BeginCaptureCall{}, 0});
    checker.on_call({EndCaptureCall{0, captured}, 0});
    if (graph_first) checker.on_call({DestroyGraphCall{0}});
    checker.on_call({DestroyCommunicatorCall{ranks}});
    EXPECT_EQ(kinds(checker), graph_first ? Kinds{} : Kinds{HazardKind::destroyed_in_use});
  }
}

TEST(RedundantEdges, AreThoseThatProtectNothing) {
  Checker checker;
  CallLog log(checker);
  {
    Device device(open_sim(), &log);
    const Stream compute(device, "compute"), loader(device, "loader");
    const Event loaded(device), twice(device);
    const Floats x(device, 4), y(device, 4);
    loader.fill(x.data(), 0, 16);
    loader.record(loaded);
    loader.record(twice);
    compute.wait(loaded);
    compute.copy(y.data(), x.data(), 16, CopyKind::device_to_device);
    compute.wait(twice);
    compute.synchronize();
  }
  checker.throw_found();
  // The host's synchronisation lets it release the memory; the second wait comes too late to be of
  // use.
  EXPECT_EQ(redundant_edges(log),
            std::vector<std::string>{"compute waits for event 1 of loader (1 call)"});
}

// A library's product uses its workspace as it likes: on two streams at once one of the results is
// not written.
TEST(Checker, TwoStreamsMayNotShareAWorkspace) {
  Bench bench;
  const DeviceBuffer memory(bench.device, 64 * 64 * sizeof(bf16)), first(bench.device, 4096),
      second(bench.device, 4096), workspace(bench.device, kProductWorkspace),
      other(bench.device, kProductWorkspace);
  bench.compute.fill(memory.data(), 0, memory.bytes());
  bench.compute.synchronize();
  const auto square = [](const DeviceBuffer& buffer, std::int64_t rows) {
    return tensor(static_cast<bf16*>(buffer.data()), rows, 32);
  };
  const auto multiply = [&](const Stream& stream, const DeviceBuffer& y,
                            const DeviceBuffer& space) {
    stream.submit(LinearForward<bf16>{
        .x = square(memory, 64),
        .w = square(memory, 32),
        .y = square(y, 64),
        .workspace = tensor(static_cast<std::uint8_t*>(space.data()), 1, 4096)});
  };
  multiply(bench.compute, first, workspace);
  multiply(bench.loader, second, other);
  EXPECT_EQ(kinds(bench.checker), Kinds{});
  multiply(bench.compute, first, workspace);
  multiply(bench.loader, second, workspace);
  ASSERT_EQ(kinds(bench.checker), Kinds{HazardKind::write_after_write});
  EXPECT_THAT(text(bench.checker.hazards().front()), HasSubstr("as scratch"));
}

}  // namespace
}  // namespace lockstep::test
