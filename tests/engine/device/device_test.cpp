// The device: who hears of a call, in which order, what is counted, and what a dry run leaves
// alone.
#include "engine/device/device.h"

#include <cstdlib>

#include "kernels/ops/accumulate.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {
namespace {

// Writes down every call.
struct Diary : Observer {
  void on_call(const IssuedCall& issued) override {
    const int s = issued.stream;
    std::visit(Overloaded{
                   [&](const SubmitCall& c) { add(s, c.op.type().name); },
                   [&](const CopyCall&) { add(s, "copy"); },
                   [&](const FillCall&) { add(s, "fill"); },
                   [&](const RecordCall& c) { add(s, "record " + std::to_string(c.event)); },
                   [&](const WaitCall& c) { add(s, "wait " + std::to_string(c.event)); },
                   [&](const BeginCaptureCall&) { add(s, "begin"); },
                   [&](const EndCaptureCall& c) {
                     add(s, "end " + std::to_string(c.graph) + " of " +
                                std::to_string(c.captured->entries().size()));
                   },
                   [&](const AbortCaptureCall&) { add(s, "abort"); },
                   [&](const LaunchCall& c) { add(s, "launch " + std::to_string(c.graph)); },
                   [&](const SyncCall& c) {
                     c.event < 0 ? add(s, "sync")
                                 : lines.push_back("sync event " + std::to_string(c.event));
                   },
                   [&](const AllocateCall& c) {
                     lines.push_back((c.pinned ? "pin " : "allocate ") + std::to_string(c.bytes));
                   },
                   [&](const ReleaseCall& c) { lines.push_back(c.pinned ? "unpin" : "release"); },
                   [](const auto&) {},
               },
               issued.call);
  }
  void add(int stream, const std::string& what) {
    lines.push_back(std::to_string(stream) + ": " + what);
  }
  std::vector<std::string> lines;
};

TEST(Device, TellsTheObserverOfEveryCallInOrder) {
  Diary diary;
  {
    Device device(open_sim(), &diary);
    const Stream a(device, "a"), b(device, "b");
    const Event e(device), f(device);
    const Floats x(device, 4);
    const PinnedBuffer pinned(device, 16);
    a.fill(x.data(), 0, 16);
    a.record(f);
    b.wait(f);
    b.copy(pinned.data(), x.data(), 16, CopyKind::device_to_host);
    f.synchronize();
    for (int i = 0; i < 2; ++i) {
      a.begin_capture();
      a.submit(ZeroGradient{.acc = x.row()});
      const Graph graph = a.end_capture();
      b.launch(graph);
    }
    b.synchronize();
    a.begin_capture();
    a.abort_capture();
  }
  EXPECT_EQ(diary.lines, (std::vector<std::string>{
                             "allocate 16",      "pin 16",        "0: fill",      "0: record 1",
                             "1: wait 1",        "1: copy",       "sync event 1", "0: begin",
                             "0: zero_gradient", "0: end 0 of 1", "1: launch 0",  "0: begin",
                             "0: zero_gradient", "0: end 1 of 1", "1: launch 1",  "1: sync",
                             "0: begin",         "0: abort",      "unpin",        "release"}));
}

// The numbers are those by which all other calls name the same things.
TEST(Device, TellsTheObserverOfEveryBeginAndEnd) {
  struct Lives : Observer {
    void on_call(const IssuedCall& issued) override {
      const std::string stream = std::to_string(issued.stream);
      const auto add = [this](const std::string& line) { lines.push_back(line); };
      std::visit(Overloaded{
                     [&](const CreateStreamCall& c) { add("stream " + stream + " " + c.name); },
                     [&](const DestroyStreamCall&) { add("no stream " + stream); },
                     [&](const CreateEventCall& c) {
                       add("event " + std::to_string(c.event) + " " + c.name);
                     },
                     [&](const DestroyEventCall& c) { add("no event " + std::to_string(c.event)); },
                     [&](const EndCaptureCall& c) { add("graph " + std::to_string(c.graph)); },
                     [&](const DestroyGraphCall& c) { add("no graph " + std::to_string(c.graph)); },
                     [](const auto&) {},
                 },
                 issued.call);
    }
    std::vector<std::string> lines;
  } lives;
  Device device(open_sim(), &lives);
  {
    Stream a(device, "a"), b(device, "b");
    Event e(device, "e"), f(device, "f");
    a.begin_capture();
    Graph graph = a.end_capture();
    a.begin_capture();
    graph = a.end_capture();
    e = std::move(f);
  }
  EXPECT_EQ(lives.lines,
            (std::vector<std::string>{"stream 0 a", "stream 1 b", "event 0 e", "event 1 f",
                                      "graph 0", "graph 1", "no graph 0", "no event 0",
                                      "no graph 1", "no event 1", "no stream 1", "no stream 0"}));
}

TEST(Device, AFailedCaptureIsToldAsAbortedAndTheNextOneWorks) {
  Diary diary;
  Device device(open_sim(), &diary);
  const Stream a(device, "a");
  a.begin_capture();
  EXPECT_EQ(code_of([&] { DeviceBuffer(device, 4); }), "cudaErrorStreamCaptureUnsupported");
  EXPECT_EQ(code_of([&] { a.end_capture(); }), "cudaErrorStreamCaptureInvalidated");
  a.begin_capture();
  EXPECT_EQ(a.end_capture().ledger().entries().size(), 0u);
  EXPECT_EQ(diary.lines,
            (std::vector<std::string>{"0: begin", "0: abort", "0: begin", "0: end 0 of 0"}));
}

TEST(Device, CountsOpsOfLaunchedGraphsAndHostSynchronisations) {
  Device device(open_sim());
  const Stream a(device, "a");
  const Event e(device);
  const Floats x(device, 4);
  a.begin_capture();
  for (int i = 0; i < 3; ++i) a.submit(ZeroGradient{.acc = x.row()});
  a.fill(x.data(), 0, 16);
  const Graph graph = a.end_capture();
  EXPECT_EQ(device.counters.ops, 0);
  for (int i = 0; i < 5; ++i) a.launch(graph);
  a.submit(ZeroGradient{.acc = x.row()});
  EXPECT_EQ(device.counters.ops, 16);
  a.synchronize();
  e.synchronize();
  EXPECT_EQ(device.counters.host_syncs, 2);
}

TEST(Device, ADryRunTouchesNothing) {
  std::vector<SimStep> trace;
  Diary diary;
  Device device(open_sim({.policy = Policy::program, .trace = &trace}), &diary);
  const Stream a(device, "a");
  const Event e(device);
  const Floats x(device, 4);
  write(a, x, 1);
  const std::vector<float> before = read(a, x);
  const std::size_t calls = diary.lines.size(), steps = trace.size();
  Ledger ledger;
  {
    const Device::RecordOnly dry(device, ledger);
    a.submit(ZeroGradient{.acc = x.row()});
    a.fill(x.data(), 0, 16);
    a.copy(x.data(), &ledger, 16, CopyKind::host_to_device);
    a.record(e);
    a.wait(e, true);
  }
  EXPECT_EQ(ledger.entries().size(), 5u);
  EXPECT_EQ(diary.lines.size(), calls);
  EXPECT_EQ(trace.size(), steps);
  EXPECT_EQ(device.counters.ops, 0);
  EXPECT_EQ(read(a, x), before);
}

TEST(DeviceDeathTest, AnOpThatBreaksItsContractNeverReachesTheDevice) {
  Device device(open_sim());
  const Stream a(device, "a");
  const Floats x(device, 4);
  EXPECT_DEATH(a.submit(AccumulateGradient{.g = {}, .acc = x.row()}), "broken contract");
}

TEST(DeviceDeathTest, ADryRunDoesNotSynchronise) {
  Device device(open_sim());
  const Stream a(device, "a");
  Ledger ledger;
  const Device::RecordOnly dry(device, ledger);
  EXPECT_DEATH(a.synchronize(), "dry run");
}

TEST(Device, HandlesMove) {
  Device device(open_sim());
  Stream a(device, "a"), b(device, "b");
  Floats x(device, 4), y(device, 8);
  void* const was = x.buffer.data();
  y.buffer = std::move(x.buffer);
  EXPECT_EQ(y.buffer.data(), was);
  EXPECT_EQ(y.buffer.bytes(), 16u);
  EXPECT_EQ(x.buffer.data(), nullptr);
  a = std::move(b);
  EXPECT_EQ(a.id(), 1);
  a.fill(was, 0, 16);
  a.synchronize();
}

TEST(Device, AnErrorNamesTheCodeTheCallAndThePlace) {
  Device device(open_sim());
  const Stream a(device, "a");
  try {
    a.end_capture();
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), "cudaErrorIllegalState");
    EXPECT_NE(std::string(error.what())
                  .find("end_capture on a stream that is not capturing: cudaErrorIllegalState ("),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find(".cpp:"), std::string::npos);
  }
}

// Where there is no GPU, opening one is an error that the program can catch; so is asking for one
// too many.
TEST(Device, AMissingGpuIsAnError) {
  const std::size_t count = cuda_devices().size();
  const std::string code = code_of([&] { open_cuda(static_cast<int>(count)); });
  EXPECT_TRUE(code == "cudaErrorNoDevice" || code == "cudaErrorInsufficientDriver" ||
              code == "cudaErrorInvalidDevice")
      << code;
}

}  // namespace
}  // namespace lockstep::test
