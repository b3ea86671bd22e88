#include "harness/bench/schedules.h"

#include <deque>

#include "engine/device/device.h"
#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/stopwatch.h"
#include "harness/explore/explore.h"
#include "harness/explore/recorder.h"
#include "kernels/core/at.h"
#include "kernels/ops/accumulate.h"

namespace lockstep {

Program bench_program() {
  constexpr int kStreams = 6, kOps = 300;
  constexpr std::int64_t kSide = 8;
  ProgramRecorder recorder;
  {
    Device device(open_sim({.policy = SimOptions::Policy::program}), &recorder);
    std::deque<Stream> streams;
    std::deque<Event> events;  // By buffer: after the last op on it.
    std::deque<DeviceBuffer> buffers;
    for (int i = 0; i < kStreams; ++i) {
      streams.emplace_back(device, ("s" + std::to_string(i)).c_str());
      events.emplace_back(device);
      buffers.emplace_back(device, kSide * kSide * sizeof(float));
      streams.back().fill(buffers.back().data(), 0, buffers.back().bytes());
      streams.back().synchronize();
    }
    const auto view = [&](int i) {
      return tensor(static_cast<float*>(at(buffers, i % kStreams).data()), kSide, kSide);
    };
    for (int i = 0; i < kOps; ++i) {
      const int from = i * 5 / 3, to = from + 1 + i % 5;  // Any two of the six meet.
      const Stream& stream = at(streams, i % kStreams);
      for (const int buffer : {from, to}) stream.wait(at(events, buffer % kStreams));
      device.place.layer = i;
      stream.submit(AccumulateGradient{.g = view(from), .acc = view(to)});
      for (const int buffer : {from, to}) stream.record(at(events, buffer % kStreams));
    }
    for (const Stream& stream : streams) stream.synchronize();
  }
  return std::move(recorder).finish();
}

ScheduleRate time_schedules(const Program& program, bool pct, double budget) {
  constexpr std::int64_t kBatch = 500;
  ExploreOptions options{
      .policy = pct ? ExploreOptions::Policy::pct : ExploreOptions::Policy::random,
      .depth = 3,
      .count = kBatch,
      .delays = {}};
  ScheduleRate rate{.policy = pct ? "pct of depth 3" : "random"};
  const Stopwatch watch;
  do {
    options.seed = static_cast<std::uint64_t>(1 + rate.schedules);
    if (explore(program, options).reordered)
      throw WorldError("bench: a schedule of a program without races differs");
    rate.schedules += kBatch;
    rate.seconds = watch.seconds();
  } while (rate.seconds < budget && !Interrupts::came());
  return rate;
}

}  // namespace lockstep
