#include "engine/rendezvous/network_meeting.h"

#include <charconv>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "engine/rendezvous/network_side.h"

namespace lockstep {

std::string text(const NetworkAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::optional<NetworkAddress> network_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.find('/') != std::string::npos) return {};
  NetworkAddress address{.host = text.substr(0, colon)};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end || address.port == 0) return {};
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

// ---- To be there ----------------------------------------------------------------------------------------------------

NetworkMeeting::NetworkMeeting(const NetworkAddress& address, const std::string& run, int rank, int ranks,
                               double deadline_s)
    : Meeting(rank, ranks, deadline_s),
      outbox_(kOutbox),
      roll_(std::make_unique<Roll>(rank, ranks)),
      side_(std::make_unique<NetworkSide>(*roll_, address, run, deadline() / 8)) {
  if (rank > 0) await_welcome(address);
}

void NetworkMeeting::await_welcome(const NetworkAddress& address) {
  std::unique_lock lock(roll_->mutex);
  roll_->news.wait_for(lock, deadline(), [&] { return roll_->welcome != Roll::Welcome::awaited; });
  const std::string who = "rank " + std::to_string(rank());
  if (roll_->welcome == Roll::Welcome::awaited) {
    throw CollectiveHang(who + " found no rank 0 at " + text(address) + " " + within() + ": " + roll_->reason);
  }
  if (roll_->welcome == Roll::Welcome::refused) {
    throw MeetingRefused(who + " is refused at " + text(address) + ": " + roll_->reason);
  }
}

NetworkMeeting::~NetworkMeeting() {
  const bool failing = std::uncaught_exceptions() > 0;
  side_->leave({.kind = failing ? Frame::Kind::failed : Frame::Kind::ended, .from = rank()});
  std::unique_lock lock(roll_->mutex);
  roll_->news.wait_for(lock, std::chrono::seconds(1), [&] { return roll_->connections == 0; });
}

// ---- A round --------------------------------------------------------------------------------------------------------

void NetworkMeeting::put(const CollectiveCall& call, std::size_t filled) {
  Frame frame{.kind = Frame::Kind::post, .from = rank(), .number = rounds(), .call = call};
  frame.body.assign(outbox_.begin(), outbox_.begin() + static_cast<std::ptrdiff_t>(filled));
  side_->say(frame);
  roll_->take_in(std::move(frame));
}

void NetworkMeeting::take() {
  const std::lock_guard lock(roll_->mutex);
  for (Roll::Peer& peer : roll_->peers) peer.rounds.pop_front();
}

// A frame that has come is this rank's own: nobody waits until it is taken.
Meeting::Progress NetworkMeeting::progress_of(int peer, Mark mark) const {
  if (mark == Mark::taken) return {.rounds = rounds()};
  const std::lock_guard lock(roll_->mutex);
  const Roll::Peer& of = roll_->peer(peer);
  const bool gone = of.state >= ended || roll_->hub_is_lost;  // Because of the first.
  return {.gone = gone ? roll_->first_gone : -1, .rounds = of.posted};
}

void NetworkMeeting::wait_for_change(int peer, Mark, std::uint32_t seen) {
  std::unique_lock lock(roll_->mutex);
  roll_->news.wait_for(lock, std::chrono::milliseconds(50), [&] {
    const Roll::Peer& of = roll_->peer(peer);
    return of.posted != seen || of.state >= ended || roll_->hub_is_lost;
  });
}

CollectiveCall NetworkMeeting::call_of(int peer) const {
  const std::lock_guard lock(roll_->mutex);
  return roll_->peer(peer).rounds.front().call;
}

const std::byte* NetworkMeeting::outbox_of(int peer) const {
  const std::lock_guard lock(roll_->mutex);
  return roll_->peer(peer).rounds.front().body.data();
}

Meeting::Last NetworkMeeting::last_of(int peer) const {
  const std::lock_guard lock(roll_->mutex);
  const Roll::Peer& of = roll_->peer(peer);
  return {.state = of.state, .posted = of.posted, .call = of.last};
}

// Rank 0, when no beat of it came for half of the deadline.
int NetworkMeeting::silent() const {
  const std::lock_guard lock(roll_->mutex);
  return rank() > 0 && Clock::now() - roll_->hub_heard >= deadline() / 2 ? 0 : -1;
}

}  // namespace lockstep
