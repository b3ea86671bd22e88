#include "harness/bench/link.h"

#include <atomic>
#include <future>
#include <vector>

#include "harness/base/stopwatch.h"

namespace lockstep {
namespace {

constexpr int kTogether = 16;  // Copies between two looks at the clock.

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
  stream.copy(out ? pinned.data() : device_memory.data(),
              out ? device_memory.data() : pinned.data(), pinned.bytes(), kind);
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

LinkRate LinkProbe::while_true(std::size_t under_way, const std::function<bool()>& goes_on) {
  std::vector<Event> left, came;
  for (std::size_t i = 0; i < under_way; ++i) {
    left.emplace_back(device_);
    came.emplace_back(device_);
  }
  double bytes = 0;
  const Stopwatch watch;
  for (std::size_t i = 0; goes_on(); i = (i + 1) % under_way) {
    left[i].synchronize();
    out_.copy();
    out_.stream.record(left[i]);
    came[i].synchronize();
    in_.copy();
    in_.stream.record(came[i]);
    bytes += static_cast<double>(bytes_);
  }
  out_.stream.synchronize();
  in_.stream.synchronize();
  const double rate = bytes / watch.seconds();
  return {rate, rate};
}

LinkRate LinkProbe::both(double budget) {
  const Stopwatch watch;
  return while_true(2, [&] { return watch.seconds() < budget; });
}

LinkRate LinkProbe::beside(const std::function<void()>& work, double at_most) {
  std::atomic<bool> done = false;
  std::future<LinkRate> rate = std::async(std::launch::async, [&] {
    device_.backend().enter_thread();
    const Stopwatch watch;
    return while_true(1, [&] { return !done && watch.seconds() < at_most; });
  });
  try {
    work();
  } catch (...) {
    done = true;
    throw;
  }
  done = true;
  return rate.get();
}

}  // namespace lockstep
