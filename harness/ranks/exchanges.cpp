#include "harness/ranks/exchanges.h"

#include <algorithm>
#include <functional>

#include "harness/base/stopwatch.h"
#include "harness/bench/median.h"

namespace lockstep {
namespace {

constexpr int kTimes = 5;

using Call = ListingCommunicator::Call;

// Calls that are made together, or one by itself.
std::vector<std::vector<Call>> groups_of(const std::vector<Call>& calls) {
  std::vector<std::vector<Call>> groups;
  for (const Call& call : calls) {
    if (call.group == 0 || groups.empty() || groups.back().front().group != call.group)
      groups.emplace_back();
    groups.back().push_back(call);
  }
  return groups;
}

// The memory that the calls of a group which lie as said read and write on each side at most.
std::size_t largest_side(const std::vector<std::vector<Call>>& groups, int ranks, bool placed) {
  std::size_t most = 4;
  for (const std::vector<Call>& group : groups) {
    std::size_t bytes = 0;
    for (const Call& call : group)
      bytes += call.placed == placed ? call.bytes * static_cast<std::size_t>(ranks) : 0;
    most = std::max(most, bytes);
  }
  return most;
}

double median_of_all(Communicator& communicator, const std::function<void()>& once) {
  std::vector<double> times;
  once();  // The first call of a size connects ranks.
  for (int i = 0; i < kTimes; ++i) {
    communicator.barrier();
    const Stopwatch watch;
    once();
    times.push_back(largest(watch.seconds(), communicator));
  }
  return median(std::move(times));
}

// Memory for both sides of an exchange: from buffer(), and ordinary.
class Sides {
 public:
  Sides(Device& device, Communicator& communicator, const std::vector<std::vector<Call>>& groups,
        const Stream& stream)
      : ranks_(communicator.size()) {
    const std::size_t any = largest_side(groups, communicator.size(), false);
    const std::size_t placed = largest_side(groups, communicator.size(), true);
    for (std::vector<DeviceBuffer>* side : {&from_, &to_}) {
      side->emplace_back(device, any);
      side->push_back(communicator.buffer(device, placed));
    }
    for (const DeviceBuffer* side : {&from_[0], &to_[0], &from_[1], &to_[1]}) {
      stream.fill(side->data(), 0, side->bytes());
    }
    stream.synchronize();
  }
  // `make` for each call of a group, with memory of its own.
  template <class Make>
  void each(const std::vector<Call>& group, Make make) const {
    std::size_t first[2] = {0, 0};
    for (const Call& call : group) {
      const std::size_t at = first[call.placed];
      make(call, static_cast<float*>(to_[call.placed].data()) + at,
           static_cast<const float*>(from_[call.placed].data()) + at);
      first[call.placed] += call.bytes * ranks_ / sizeof(float);
    }
  }

 private:
  std::size_t ranks_;
  std::vector<DeviceBuffer> from_, to_;  // Any, and that for exchanges.
};

// The call by `ranks`, the engine's or the library's, whose calls begin with `on`.
template <class Ranks, class... On>
void make(const Call& call, float* to, const float* from, Ranks& ranks, const On&... on) {
  if (call.kind == CollectiveKind::all_gather) ranks.all_gather(on..., to, from, call.bytes);
  if (call.kind == CollectiveKind::all_to_all) ranks.all_to_all(on..., to, from, call.bytes);
  if (call.kind == CollectiveKind::reduce_scatter)
    ranks.reduce_scatter(on..., to, from, call.bytes);
  if (call.kind == CollectiveKind::all_reduce) ranks.all_reduce(on..., to, call.bytes);
}

}  // namespace

DeviceBuffer ListingCommunicator::buffer(Device& device, std::size_t bytes) {
  DeviceBuffer made = inner_.buffer(device, bytes);
  places_.emplace_back(static_cast<const std::byte*>(made.data()), bytes);
  return made;
}

bool ListingCommunicator::is_placed(const void* memory) const {
  const auto* const byte = static_cast<const std::byte*>(memory);
  return std::any_of(places_.begin(), places_.end(), [byte](const auto& place) {
    return byte >= place.first && byte < place.first + place.second;
  });
}

void ListingCommunicator::send(const Stream& stream, const CollectiveName& name, const void* from,
                               std::size_t bytes, int to) {
  if (silent) return;
  ++transfers.sends;
  transfers.bytes += static_cast<double>(bytes);
  inner_.send(stream, name, from, brief ? 1 : bytes, to);
}

std::unique_ptr<Communicator> ListingCommunicator::group(const std::vector<int>& ranks) {
  std::unique_ptr<ListingCommunicator> made(new ListingCommunicator(inner_.group(ranks)));
  if (on_group) on_group(*made);
  return made;
}

bool ListingCommunicator::passes(const Stream& stream, CollectiveKind kind, const void* to,
                                 const void* from, std::size_t bytes) {
  if (silent) return false;
  stream.device().count(stream, collectives);
  calls.push_back(
      {.kind = kind, .bytes = bytes, .group = group_, .placed = is_placed(to) && is_placed(from)});
  return true;
}

double bytes_sent(const Call& call, int ranks) {
  const double others = ranks - 1, bytes = static_cast<double>(call.bytes);
  return call.kind == CollectiveKind::all_reduce ? 2 * others * bytes / ranks : others * bytes;
}

std::vector<double> values_of_ranks(double value, Communicator& communicator) {
  std::vector<double> values;
  for (const std::string& said : communicator.all_gather_object(std::to_string(value * 1e9)))
    values.push_back(std::stod(said) * 1e-9);
  return values;
}

double largest(double value, Communicator& communicator) {
  const std::vector<double> values = values_of_ranks(value, communicator);
  return std::max(value, *std::ranges::max_element(values));
}

double seconds_of(const std::vector<Call>& calls, Device& device, Communicator& communicator) {
  const auto groups = groups_of(calls);
  const Stream stream(device, "measured");
  const Sides sides(device, communicator, groups, stream);
  const auto by_engine = [&](const Call& call, float* to, const float* from) {
    make(call, to, from, communicator, stream, CollectiveName{"measured"});
  };
  return median_of_all(communicator, [&] {
    for (const std::vector<Call>& group : groups) {
      communicator.grouped([&] { sides.each(group, by_engine); });
    }
    stream.synchronize();
  });
}

double seconds_of(const std::vector<Call>& calls, Device& device, Communicator& communicator,
                  BackendCommunicator& library) {
  const auto groups = groups_of(calls);
  const Stream filler(device, "fill");
  const Sides sides(device, communicator, groups, filler);
  Backend& backend = device.backend();
  BackendStream* const stream = backend.create_stream("bare");
  const auto by_library = [&](const Call& call, float* to, const float* from) {
    if (call.bytes > 0) make(call, to, from, library, stream);
  };
  const double seconds = median_of_all(communicator, [&] {
    for (const std::vector<Call>& group : groups) {
      if (group.size() > 1) library.begin_group();
      sides.each(group, by_library);
      if (group.size() > 1) library.end_group();
    }
    backend.synchronize(stream);
  });
  backend.destroy_stream(stream);
  return seconds;
}

ExchangeCalls of_kind(const ExchangeCalls& calls, bool gathers) {
  ExchangeCalls some;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(some), [=](const auto& call) {
    return (call.kind == CollectiveKind::all_gather) == gathers;
  });
  return some;
}

ExchangeTimes exchange_times(const ExchangeCalls& calls, Device& device, Communicator& communicator,
                             BackendCommunicator* library) {
  ExchangeTimes times;
  times.calls = std::ssize(calls);
  if (calls.empty()) return times;
  for (const auto& call : calls) times.bytes += bytes_sent(call, communicator.size());
  times.engine = seconds_of(calls, device, communicator);
  if (library != nullptr) times.library = seconds_of(calls, device, communicator, *library);
  return times;
}

}  // namespace lockstep
