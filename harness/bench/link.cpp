#include "harness/bench/link.h"

#include <algorithm>

#include "harness/stopwatch.h"

namespace lockstep {
namespace {

constexpr double kMostBytesPerSecond = 70e9;  // More than PCIe 5 can carry: so much is queued that it never runs dry.
constexpr int kTogether = 16;                 // Copies between two looks at the clock.

bool simulated(const Device& device) { return device.info().kind == "sim"; }

}  // namespace

LinkProbe::Way::Way(Device& device, const char* name, std::size_t bytes, CopyKind kind_)
    : stream(device, name), device_memory(device, bytes), pinned(device, bytes), kind(kind_) {
  stream.fill(device_memory.data(), 0, bytes);
  stream.copy(pinned.data(), device_memory.data(), bytes, CopyKind::device_to_host);
  stream.synchronize();
}

void LinkProbe::Way::copy() const {
  const bool out = kind == CopyKind::device_to_host;
  stream.copy(out ? pinned.data() : device_memory.data(), out ? device_memory.data() : pinned.data(), pinned.bytes(),
              kind);
}

LinkProbe::LinkProbe(Device& device)
    : bytes_(simulated(device) ? std::size_t{1} << 12 : std::size_t{1} << 25),
      device_(device),
      out_(device, "probe_out", bytes_, CopyKind::device_to_host),
      in_(device, "probe_in", bytes_, CopyKind::host_to_device) {}

double LinkProbe::rate_of(const Way& way, double budget) const {
  double bytes = 0;
  const Stopwatch watch;
  do {
    for (int i = 0; i < kTogether; ++i) way.copy();
    way.stream.synchronize();
    bytes += kTogether * static_cast<double>(bytes_);
  } while (watch.seconds() < budget);
  return bytes / watch.seconds();
}

LinkRate LinkProbe::alone(double budget) { return {rate_of(out_, budget), rate_of(in_, budget)}; }

LinkRate LinkProbe::both() {
  const Stopwatch watch;
  for (int i = 0; i < kTogether; ++i) {
    out_.copy();
    in_.copy();
  }
  out_.stream.synchronize();
  in_.stream.synchronize();
  const double rate = kTogether * static_cast<double>(bytes_) / watch.seconds();
  return {rate, rate};
}

LinkRate LinkProbe::beside(Trainer& trainer, int steps, double seconds) {
  const double wanted = steps * seconds * kMostBytesPerSecond / static_cast<double>(bytes_);
  const int copies = simulated(device_) ? kTogether : static_cast<int>(wanted) + kTogether;
  std::vector<Event> left, came;
  for (int i = 0; i < copies; ++i) {
    left.emplace_back(device_);
    came.emplace_back(device_);
  }
  const Stopwatch watch;
  for (std::size_t i = 0; i < left.size(); ++i) {
    out_.copy();
    out_.stream.record(left[i]);
    in_.copy();
    in_.stream.record(came[i]);
  }
  for (int i = 0; i < steps; ++i) trainer.step();
  const auto done = [](const std::vector<Event>& events) {
    return static_cast<double>(
        std::count_if(events.begin(), events.end(), [](const Event& event) { return event.finished(); }));
  };
  const double time = watch.seconds();
  const LinkRate rate{done(left) * static_cast<double>(bytes_) / time, done(came) * static_cast<double>(bytes_) / time};
  out_.stream.synchronize();
  in_.stream.synchronize();
  return rate;
}

}  // namespace lockstep
