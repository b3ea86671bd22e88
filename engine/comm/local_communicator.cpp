#include "engine/comm/local_communicator.h"

#include <numeric>

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

// 0, 1, ...
std::vector<int> all_of(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

LocalRanks::LocalRanks(Device& device, int size, std::uint64_t seed)
    : device(device), threads(device, all_of(size), seed) {
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(device);
}

std::string LocalRanks::report() {
  std::string said;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    said += (rank > 0 ? "; rank " : "rank ") + std::to_string(rank) +
            (threads.has_ended(static_cast<int>(rank)) ? " has ended after " : " waits in ") +
            text(ranks[rank].ledger.last());
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
  all_.device.meets(false);
  all_gather_object("");
  all_.device.meets(true);
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

void LocalCommunicator::pass_the_turn() {
  if (!all_.threads.arrive_and_wait(rank_))
    throw CollectiveHang("ranks wait for one that has ended: " + all_.report());
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

}  // namespace lockstep
