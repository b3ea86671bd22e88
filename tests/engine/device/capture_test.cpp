// Capture and graphs on the simulated device: what is refused, by CUDA's names, and what a launch
// does.
#include <bit>
#include <functional>
#include <optional>
#include <thread>

#include "kernels/ops/accumulate.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

struct Bench {
  explicit Bench(Policy policy = Policy::lazy)
      : device(open_sim({.policy = policy, .trace = &trace})) {}
  std::vector<SimStep> trace;  // Outlives the device.
  Device device;
  Stream a{device, "a"}, b{device, "b"};
  Event e{device}, f{device};
  Floats x{device, 4}, y{device, 4};
};

TEST(Capture, LeavesNoTraceUntilItIsLaunched) {
  for (const Policy policy : all_policies()) {
    Bench s(policy);
    write(s.a, s.x, 1);
    s.a.synchronize();
    const std::size_t before = s.trace.size();
    const std::int64_t ops = s.device.counters.ops;
    s.a.begin_capture();
    EXPECT_EQ(s.a.capture_status(), CaptureStatus::active);
    s.a.submit(ZeroGradient{.acc = s.x.row()});
    s.a.fill(s.y.data(), 0, 16);
    const Graph graph = s.a.end_capture();
    EXPECT_EQ(s.a.capture_status(), CaptureStatus::none);
    EXPECT_EQ(s.device.counters.ops, ops);
    EXPECT_EQ(s.trace.size(), before);
    EXPECT_EQ(read(s.a, s.x), std::vector<float>(4, 1.0f));
    s.a.launch(graph);
    s.a.launch(graph);
    EXPECT_EQ(s.device.counters.ops, ops + 2);
    EXPECT_EQ(read(s.a, s.x), std::vector<float>(4, 0.0f));
    EXPECT_EQ(graph.ledger().entries().size(), 2u);
  }
}

// x = 1 on a; y = x on the fork b; x = x + y on a after the join.
Graph fork_and_join(Bench& s, bool fork_waits) {
  s.a.begin_capture();
  s.a.fill(s.x.data(), 0x3f, 16);
  s.a.record(s.e);
  if (fork_waits) s.b.wait(s.e);
  s.b.copy(s.y.data(), s.x.data(), 16, CopyKind::device_to_device);
  s.b.record(s.f);
  if (fork_waits) s.a.wait(s.f);
  s.a.submit(AccumulateGradient{.g = s.y.row(), .acc = s.x.row()});
  return s.a.end_capture();
}

TEST(Capture, ForksAndJoinsThroughEvents) {
  for (const Policy policy : all_policies()) {
    Bench s(policy);
    const Graph graph = fork_and_join(s, true);
    EXPECT_EQ(s.b.capture_status(), CaptureStatus::none);
    EXPECT_EQ(graph.ledger().entries().size(), 7u);
    EXPECT_TRUE(graph.ledger().entries()[2].as<WaitCall>());
    EXPECT_EQ(graph.ledger().entries()[2].stream, s.b.id());
    s.b.launch(graph);  // Anywhere, not only where it was captured.
    const float once = std::bit_cast<float>(0x3f3f3f3fu);
    EXPECT_EQ(read(s.b, s.x), std::vector<float>(4, once + once));
  }
}

TEST(Capture, WorkOnAnotherStreamRunsAndIsNotInTheLedger) {
  Bench s;
  const Graph graph = fork_and_join(s, false);  // b never joined the capture.
  EXPECT_EQ(graph.ledger().entries().size(), 3u);
  s.b.synchronize();
  EXPECT_EQ(s.trace.size(), 1u);
}

TEST(Capture, BranchesOfAGraphRunInAnyOrder) {
  std::vector<bool> first(2);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<SimStep> trace;
    Device device(open_sim({.policy = Policy::random, .seed = seed, .trace = &trace}));
    const Stream a(device, "a"), b(device, "b");
    const Event e(device), f(device);
    const Floats x(device, 4);
    a.begin_capture();
    a.record(e);
    b.wait(e);
    a.fill(x.data(), 1, 16);
    b.fill(x.data(), 2, 16);
    b.record(f);
    a.wait(f);
    const Graph graph = a.end_capture();
    a.launch(graph);
    a.synchronize();
    ASSERT_EQ(trace.size(), 2u);
    first[static_cast<std::size_t>(trace[0].stream)] = true;
  }
  EXPECT_TRUE(first[0]);
  EXPECT_TRUE(first[1]);
}

TEST(Capture, LaunchesOfOneGraphDoNotOverlap) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Bench s(Policy::random);
    s.a.begin_capture();
    s.a.submit(ZeroGradient{.acc = s.x.row()});
    s.a.submit(AccumulateGradient{.g = s.y.row(), .acc = s.x.row()});
    const Graph graph = s.a.end_capture();
    s.trace.clear();
    s.a.launch(graph);
    s.b.launch(graph);
    s.b.synchronize();
    ASSERT_EQ(s.trace.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_STREQ(s.trace[i].what, i % 2 ? "accumulate_gradient" : "zero_gradient");
  }
}

TEST(Capture, ExternalEventsOrderAGraphAgainstTheWorldOutside) {
  for (const Policy policy : all_policies()) {
    Bench s(policy);
    s.a.begin_capture();
    s.a.wait(s.e, true);
    s.a.copy(s.y.data(), s.x.data(), 16, CopyKind::device_to_device);
    s.a.record(s.f, true);
    s.a.fill(s.x.data(), 0, 16);
    const Graph graph = s.a.end_capture();
    for (const float value : {1.0f, 2.0f}) {
      write(s.b, s.x, value);
      s.b.record(s.e);
      s.a.launch(graph);
      s.b.wait(s.f);  // The record of the launch above, though it has not run.
      EXPECT_EQ(read(s.b, s.y), std::vector<float>(4, value));
      s.a.synchronize();
    }
  }
}

TEST(Capture, LazyRunsNoMoreOfAGraphThanAnExternalRecordNeeds) {
  Bench s;
  s.a.begin_capture();
  s.a.fill(s.x.data(), 1, 16);
  s.a.record(s.e, true);
  s.a.fill(s.x.data(), 2, 16);
  const Graph graph = s.a.end_capture();
  s.a.launch(graph);
  s.e.synchronize();
  EXPECT_EQ(s.trace.size(), 1u);
  s.a.synchronize();
  EXPECT_EQ(s.trace.size(), 2u);
}

// Calls that are illegal on the thread that captures: refused, and the capture is broken.
TEST(Capture, RefusesWhatCudaRefusesAndIsInvalidatedByIt) {
  using Call = std::function<void(Bench&)>;
  const std::vector<std::pair<const char*, Call>> calls{
      {"allocate", [](Bench& s) { DeviceBuffer(s.device, 16); }},
      {"allocate pinned", [](Bench& s) { PinnedBuffer(s.device, 16); }},
      {"synchronize the capturing stream", [](Bench& s) { s.a.synchronize(); }},
      {"synchronize another stream", [](Bench& s) { s.b.synchronize(); }},
      {"query the capturing stream", [](Bench& s) { static_cast<void>(s.a.finished()); }},
      {"query another stream", [](Bench& s) { static_cast<void>(s.b.finished()); }},
      {"synchronize an event", [](Bench& s) { s.e.synchronize(); }},
      {"query an event", [](Bench& s) { static_cast<void>(s.e.finished()); }},
      {"stream-ordered allocation elsewhere",
       [](Bench& s) {
         s.device.backend().allocate_async(s.device.backend().create_stream("c"), 16);
       }},
  };
  for (const auto& [name, call] : calls) {
    Bench s;
    s.a.begin_capture();
    s.a.fill(s.x.data(), 1, 16);
    EXPECT_EQ(code_of([&] { call(s); }), "cudaErrorStreamCaptureUnsupported") << name;
    EXPECT_EQ(s.a.capture_status(), CaptureStatus::invalidated) << name;
    EXPECT_EQ(code_of([&] { call(s); }), "cudaErrorStreamCaptureUnsupported") << name;
    EXPECT_EQ(code_of([&] { s.a.fill(s.x.data(), 1, 16); }), "cudaErrorStreamCaptureInvalidated")
        << name;
    EXPECT_EQ(code_of([&] { s.a.record(s.e); }), "cudaErrorStreamCaptureInvalidated") << name;
    EXPECT_EQ(code_of([&] { s.a.wait(s.e); }), "cudaErrorStreamCaptureInvalidated") << name;
    EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated") << name;
    EXPECT_EQ(s.a.capture_status(), CaptureStatus::none) << name;
    s.a.fill(s.x.data(), 1, 16);  // The stream is usable again.
    s.a.synchronize();
    EXPECT_EQ(s.trace.size(), 1u) << name;
  }
}

TEST(Capture, MemoryFreedMeanwhileBreaksItAndIsGivenBackLater) {
  Bench s;
  const std::size_t before = s.device.backend().memory_in_use();
  {
    const DeviceBuffer gone(s.device, 16);
    s.a.begin_capture();
  }
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::invalidated);
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
  s.a.synchronize();
  EXPECT_EQ(s.device.backend().memory_in_use(), before);
}

// The CUDA device waits for the stream, which no capture permits.
TEST(Capture, IsBrokenByTheEndOfAStreamAndNotByThatOfAnEvent) {
  Bench s;
  std::optional<Stream> stream(std::in_place, s.device, "c");
  s.a.begin_capture();
  { const Event event(s.device); }
  { const Stream fresh(s.device, "fresh"); }
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::invalidated);
  s.a.abort_capture();
  s.a.begin_capture();
  { const Event event(s.device); }
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::active);
  stream.reset();
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::invalidated);
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
}

TEST(Capture, OtherThreadsMayAllocateAndPollMeanwhile) {
  Bench s;
  s.a.begin_capture();
  std::thread([&] {
    DeviceBuffer(s.device, 16);
    s.b.synchronize();
    s.e.synchronize();
  }).join();
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::active);
  s.a.end_capture();
}

TEST(Capture, EndsOnlyWhereAndByWhomItWasBegun) {
  Bench s;
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorIllegalState");
  s.a.begin_capture();
  EXPECT_EQ(code_of([&] { s.a.begin_capture(); }), "cudaErrorIllegalState");
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::active);
  s.a.record(s.e);
  s.b.wait(s.e);
  EXPECT_EQ(code_of([&] { s.b.end_capture(); }), "cudaErrorStreamCaptureUnmatched");
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
  s.a.begin_capture();
  std::thread([&] {
    EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureWrongThread");
  }).join();
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorIllegalState");
}

TEST(Capture, AForkMustBeJoined) {
  for (const bool work_after_the_join : {false, true}) {
    Bench s;
    s.a.begin_capture();
    s.a.record(s.e);
    s.b.wait(s.e);
    s.b.fill(s.x.data(), 1, 16);
    if (work_after_the_join) {
      s.b.record(s.f);
      s.a.wait(s.f);
      s.b.fill(s.x.data(), 1, 16);
    }
    EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureUnjoined");
    EXPECT_EQ(s.b.capture_status(), CaptureStatus::none);
    s.b.synchronize();
    EXPECT_EQ(s.trace.size(), 0u);
  }
  Bench s;  // A fork that did nothing is joined.
  s.a.begin_capture();
  s.a.record(s.e);
  s.b.wait(s.e);
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "");
}

TEST(Capture, DoesNotWaitForWorkOutsideIt) {
  Bench s;
  s.b.record(s.e);
  s.a.begin_capture();
  s.a.wait(s.f);  // Never recorded: nothing to wait for.
  EXPECT_EQ(code_of([&] { s.a.wait(s.e); }), "cudaErrorStreamCaptureIsolation");
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
}

TEST(Capture, TwoCapturesDoNotMerge) {
  const std::unique_ptr<Backend> backend = open_sim();
  BackendStream *a = backend->create_stream("a"), *b = backend->create_stream("b");
  BackendEvent* e = backend->create_event();
  backend->begin_capture(a);
  backend->begin_capture(b);
  backend->record(a, e, false);
  EXPECT_EQ(code_of([&] { backend->wait(b, e, false); }), "cudaErrorStreamCaptureMerge");
  for (BackendStream* stream : {a, b}) {
    EXPECT_EQ(backend->capture_status(stream), CaptureStatus::invalidated);
    EXPECT_EQ(code_of([&] { backend->end_capture(stream); }), "cudaErrorStreamCaptureInvalidated");
  }
  backend->destroy_event(e);
}

TEST(Capture, ACapturedEventIsNotForTheHost) {
  for (const bool query : {false, true}) {
    Bench s;
    s.a.begin_capture();
    s.a.record(s.e);
    const auto look = [&] { query ? static_cast<void>(s.e.finished()) : s.e.synchronize(); };
    EXPECT_EQ(code_of(look), "cudaErrorCapturedEvent");
    EXPECT_EQ(code_of([&] { s.b.wait(s.e); }), "cudaErrorInvalidValue");
    EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
    EXPECT_EQ(code_of(look), "cudaErrorInvalidValue");
    s.a.record(s.e);
    EXPECT_EQ(code_of(look), "");
  }
}

TEST(Capture, AnEventOfACaptureThatIsOverCannotBeWaitedFor) {
  Bench s;
  s.a.begin_capture();
  s.a.record(s.e);
  const Graph graph = s.a.end_capture();
  EXPECT_EQ(code_of([&] { s.b.wait(s.e); }), "cudaErrorInvalidValue");
  s.a.begin_capture();
  EXPECT_EQ(code_of([&] { s.a.wait(s.e); }), "cudaErrorInvalidValue");
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
}

TEST(Capture, ALaunchCannotBeCaptured) {
  Bench s;
  s.a.begin_capture();
  const Graph graph = s.a.end_capture();
  s.a.begin_capture();
  s.b.launch(graph);  // Elsewhere it is legal.
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::active);
  EXPECT_EQ(code_of([&] { s.a.launch(graph); }), "cudaErrorStreamCaptureUnsupported");
  EXPECT_EQ(code_of([&] { s.a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
}

TEST(Capture, ExternalEventsNeedOne) {
  Bench s;
  EXPECT_EQ(code_of([&] { s.a.record(s.e, true); }), "cudaErrorIllegalState");
  EXPECT_EQ(code_of([&] { s.a.wait(s.e, true); }), "cudaErrorIllegalState");
}

TEST(Capture, CanBeGivenUp) {
  Bench s;
  s.a.begin_capture();
  s.a.submit(ZeroGradient{.acc = s.x.row()});
  s.a.abort_capture();
  s.a.abort_capture();  // Nothing left to give up.
  EXPECT_EQ(s.a.capture_status(), CaptureStatus::none);
  s.a.submit(ZeroGradient{.acc = s.x.row()});
  EXPECT_EQ(s.device.counters.ops, 1);
  EXPECT_EQ(read(s.a, s.x), std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace lockstep::test
