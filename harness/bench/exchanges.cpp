#include "harness/bench/exchanges.h"

#include <algorithm>
#include <functional>

#include "harness/bench/median.h"
#include "harness/stopwatch.h"

namespace lockstep {
namespace {

constexpr int kTimes = 5;

using Call = ListingCommunicator::Call;

// The memory that a call reads and writes on each side at most.
std::size_t largest_side(const std::vector<Call>& calls, int ranks) {
  std::size_t most = 4;
  for (const Call& call : calls) most = std::max(most, call.bytes * static_cast<std::size_t>(ranks));
  return most;
}

double median_of_all(Communicator& communicator, const std::function<void()>& once) {
  std::vector<double> times;
  once();  // The first call of a size connects ranks.
  for (int i = 0; i < kTimes; ++i) {
    communicator.meet();
    const Stopwatch watch;
    once();
    times.push_back(largest(watch.seconds(), communicator));
  }
  return median(std::move(times));
}

// On both sides of an exchange.
struct Sides {
  Sides(Device& device, std::size_t bytes, const Stream& stream) : from(device, bytes), to(device, bytes) {
    stream.fill(from.data(), 0, bytes);
    stream.fill(to.data(), 0, bytes);
    stream.synchronize();
  }
  DeviceBuffer from, to;
};

}  // namespace

bool ListingCommunicator::passes(CollectiveKind kind, std::size_t bytes) {
  if (silent) return false;
  ++collectives;
  calls.push_back({kind, bytes});
  return true;
}

double bytes_sent(const Call& call, int ranks) {
  const double others = ranks - 1, bytes = static_cast<double>(call.bytes);
  return call.kind == CollectiveKind::all_reduce ? 2 * others * bytes / ranks : others * bytes;
}

double largest(double value, Communicator& communicator) {
  double most = value;
  for (const std::string& said : communicator.tell(std::to_string(value * 1e9))) {
    most = std::max(most, std::stod(said) * 1e-9);
  }
  return most;
}

double seconds_of(const std::vector<Call>& calls, Device& device, Communicator& communicator) {
  const Stream stream(device, "measured");
  const Sides sides(device, largest_side(calls, communicator.size()), stream);
  auto* const to = static_cast<float*>(sides.to.data());
  const auto* const from = static_cast<const float*>(sides.from.data());
  return median_of_all(communicator, [&] {
    for (const Call& call : calls) {
      if (call.kind == CollectiveKind::all_gather) communicator.all_gather(stream, {"gather"}, to, from, call.bytes);
      if (call.kind == CollectiveKind::all_to_all) communicator.all_to_all(stream, {"reduce"}, to, from, call.bytes);
      if (call.kind == CollectiveKind::reduce_scatter) {
        communicator.reduce_scatter(stream, {"reduce"}, to, from, call.bytes);
      }
      if (call.kind == CollectiveKind::all_reduce) communicator.all_reduce(stream, {"reduce"}, to, call.bytes);
    }
    stream.synchronize();
  });
}

double seconds_of(const std::vector<Call>& calls, Device& device, Communicator& communicator,
                  BackendCommunicator& library) {
  const Stream filler(device, "fill");
  const Sides sides(device, largest_side(calls, communicator.size()), filler);
  auto* const to = static_cast<float*>(sides.to.data());
  const auto* const from = static_cast<const float*>(sides.from.data());
  Backend& backend = device.backend();
  BackendStream* const stream = backend.create_stream("bare");
  const double seconds = median_of_all(communicator, [&] {
    for (const Call& call : calls) {
      if (call.bytes == 0) continue;
      if (call.kind == CollectiveKind::all_gather) library.all_gather(stream, to, from, call.bytes);
      if (call.kind == CollectiveKind::all_to_all) library.all_to_all(stream, to, from, call.bytes);
      if (call.kind == CollectiveKind::reduce_scatter) library.reduce_scatter(stream, to, from, call.bytes);
      if (call.kind == CollectiveKind::all_reduce) library.all_reduce(stream, to, call.bytes);
    }
    backend.synchronize(stream);
  });
  backend.destroy_stream(stream);
  return seconds;
}

}  // namespace lockstep
