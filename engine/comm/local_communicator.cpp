#include "engine/comm/local_communicator.h"

#include <algorithm>
#include <utility>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

const std::byte* part(const void* memory, int rank, std::size_t bytes) {
  return static_cast<const std::byte*>(memory) + static_cast<std::size_t>(rank) * bytes;
}
std::byte* part(void* memory, int rank, std::size_t bytes) {
  return static_cast<std::byte*>(memory) + static_cast<std::size_t>(rank) * bytes;
}

}  // namespace

LocalRanks::LocalRanks(Device& device, CooperativeThreads& threads, std::vector<int> numbers)
    : device(device), threads(threads), numbers(std::move(numbers)) {
  for (std::size_t rank = 0; rank < this->numbers.size(); ++rank) ranks.emplace_back(device);
}

std::string LocalRanks::report() {
  std::string said;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const int number = numbers[rank];
    const auto receives = awaited.find(number);
    said += (rank > 0 ? "; rank " : "rank ") + std::to_string(number) +
            (threads.has_ended(number) ? " has ended after " : " waits in ") +
            text(receives != awaited.end() ? receives->second : ranks[rank].ledger.last());
  }
  return said;
}

void LocalCommunicator::all_gather(const Stream& stream, const CollectiveName& name, void* to,
                                   const void* from, std::size_t bytes) {
  post(stream, CollectiveKind::all_gather, name, from, bytes);
  for (int peer = 0; peer < size(); ++peer)
    take(stream, peer, part(to, peer, bytes), at(peer).from, bytes);
  finish(stream);
}

void LocalCommunicator::all_to_all(const Stream& stream, const CollectiveName& name, void* to,
                                   const void* from, std::size_t bytes) {
  require(bytes == 0 || to != from, "what is exchanged goes to other memory");
  post(stream, CollectiveKind::all_to_all, name, from, bytes);
  for (int peer = 0; peer < size(); ++peer) {
    const int own = faulty("exchange-takes-another-part", rank_, peer);
    take(stream, peer, part(to, peer, bytes), part(at(peer).from, own, bytes), bytes);
  }
  finish(stream);
}

// The checker sees a barrier as an edge between hosts. The turns that collectives and
// all_gather_object take are none: other transports have no such edges.
void LocalCommunicator::barrier() {
  if (all_.are_all()) all_.device.meets(false);
  all_gather_object("");
  if (all_.are_all()) all_.device.meets(true);
}

std::vector<std::string> LocalCommunicator::all_gather_object(const std::string& words) {
  const std::size_t parity = me_.ledger.append(CollectiveKind::barrier, {}, 0, "").sequence % 2;
  me_.words[parity] = words;
  pass_the_turn();
  compare();
  std::vector<std::string> said;
  for (const LocalRank& rank : all_.ranks) said.push_back(rank.words[parity]);
  return said;
}

void LocalCommunicator::post(const Stream& stream, CollectiveKind kind, const CollectiveName& name,
                             const void* from, std::size_t bytes) {
  require(stream.capture_status() == CaptureStatus::none,
          "no collective of several ranks in a capture");
  if (me_.last_stream >= 0 && me_.last_stream != stream.id()) stream.wait(me_.over);
  stream.record(me_.ready);
  me_.ledger.append(kind, name, bytes, stream.name());
  me_.from = from;
  me_.last_stream = stream.id();
  all_.device.count(stream, collectives);
  pass_the_turn();
  compare();
}

// A group meets without the others.
void LocalCommunicator::pass_the_turn() {
  const auto came = [this, mine = ++me_.arrivals] {
    return std::all_of(all_.ranks.begin(), all_.ranks.end(),
                       [=](const LocalRank& rank) { return rank.arrivals >= mine; });
  };
  const bool met = all_.are_all() ? all_.threads.arrive_and_wait(thread())
                                  : all_.threads.wait_until(thread(), came);
  if (!met) throw CollectiveHang("ranks wait for one that has ended: " + all_.report());
}

// A rank that had its turn before this one may be a call ahead.
void LocalCommunicator::compare() {
  const CollectiveCall call = me_.ledger.last();
  for (int peer = 0; peer < size(); ++peer)
    require_same_call(rank_, call, peer, at(peer).ledger.at(call.sequence));
}

void LocalCommunicator::take(const Stream& stream, int peer, void* to, const void* from,
                             std::size_t bytes) {
  if (peer != rank_) stream.wait(at(peer).ready);
  if (bytes > 0 && to != from) stream.copy(to, from, bytes, CopyKind::device_to_device);
}

// Later work on the stream may write `from`, so it waits until the others have read it.
void LocalCommunicator::finish(const Stream& stream) {
  stream.record(me_.done);
  pass_the_turn();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) stream.wait(at(peer).done);
  }
  stream.record(me_.over);
}

// ---- Point to point -----------------------------------------------------------------------------

LocalMessage& LocalWay::add(Device& device) {
  while (!sent.empty() && sent.front()->is_taken) {
    spare.push_back(std::move(sent.front()));
    sent.pop_front();
  }
  if (spare.empty()) spare.push_back(std::make_unique<LocalMessage>(device));
  sent.push_back(std::move(spare.front()));
  spare.pop_front();
  sent.back()->is_taken = false;
  return *sent.back();
}

// The turns of the threads decide how much is on its way at once, and what a run allocates must not
// depend on them.
void LocalCommunicator::connect(const std::vector<TransferWay>& ways) {
  std::map<int, std::size_t> most;
  for (const TransferWay& way : ways) {
    if (way.from == rank_) most[way.to] += way.most;
  }
  for (const auto& [to, count] : most) {
    LocalWay& way = all_.ways[{rank_, to}];
    while (way.spare.size() + way.sent.size() < count)
      way.spare.push_back(std::make_unique<LocalMessage>(all_.device));
  }
}

void LocalCommunicator::send(const Stream& stream, const CollectiveName& name, const void* from,
                             std::size_t bytes, int to) {
  require(stream.capture_status() == CaptureStatus::none, "nothing is sent in a capture");
  LocalMessage& message = all_.ways[{rank_, to}].add(all_.device);
  message.call = call_of_transfer(name, bytes, stream.name());
  message.from = from;
  stream.record(message.ready);
  all_.device.count(stream, collectives);
}

// Messages of one purpose and piece come in order; those of others may have come before.
void LocalCommunicator::receive(const Stream& stream, const CollectiveName& name, void* to,
                                std::size_t bytes, int from) {
  require(stream.capture_status() == CaptureStatus::none, "nothing is received in a capture");
  const CollectiveCall call = call_of_transfer(name, bytes, stream.name());
  auto& sent = all_.ways[{from, rank_}].sent;
  const auto next = [&] {
    return std::find_if(sent.begin(), sent.end(), [&](const auto& one) {
      return !one->is_taken && one->call.is_on_the_way_of(call);
    });
  };
  all_.awaited[rank_] = call;
  const bool came = all_.threads.wait_until(thread(), [&] { return next() != sent.end(); });
  if (!came) {
    throw CollectiveHang("rank " + std::to_string(from) +
                         " does not send what is awaited: " + all_.report());
  }
  all_.awaited.erase(rank_);
  LocalMessage& message = **next();
  require_same_call(rank_, call, from, message.call);
  stream.wait(message.ready);
  if (bytes > 0) stream.copy(to, message.from, bytes, CopyKind::device_to_device);
  stream.record(message.read);
  message.is_taken = true;
}

void LocalCommunicator::await_sent(const Stream& stream, int to) {
  for (const auto& message : all_.ways[{rank_, to}].sent) {
    const bool came = all_.threads.wait_until(thread(), [&] { return message->is_taken; });
    if (!came) throw CollectiveHang("what was sent is not received: " + all_.report());
    stream.wait(message->read);
  }
}

std::unique_ptr<Communicator> LocalCommunicator::group(const std::vector<int>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  require(all_.are_all() && own != ranks.end(), "a rank is in its group");
  std::unique_ptr<LocalRanks>& group = all_.groups[ranks];
  if (group == nullptr) {
    group = std::make_unique<LocalRanks>(all_.device, all_.threads, ranks);
    group->whole = &all_;
  }
  return std::make_unique<LocalCommunicator>(*group, static_cast<int>(own - ranks.begin()));
}

}  // namespace lockstep
