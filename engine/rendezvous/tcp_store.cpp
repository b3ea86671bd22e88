#include "engine/rendezvous/tcp_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "engine/rendezvous/endpoint.h"

namespace lockstep {

std::string text(const TcpAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::optional<TcpAddress> tcp_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.find('/') != std::string::npos) return {};
  TcpAddress address{.host = text.substr(0, colon)};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end || address.port == 0) return {};
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

// ---- Joining ------------------------------------------------------------------------------------

TcpStore::TcpStore(const TcpAddress& address, const RunIdentity& run, int rank, int ranks,
                   double deadline_s)
    : Store(rank, ranks, deadline_s),
      outbox_(kOutbox),
      membership_(std::make_unique<Membership>(rank, ranks)),
      endpoint_(std::make_unique<Endpoint>(*membership_, address, run, deadline() / 8)) {
  if (rank > 0) await_welcome(address);
}

void TcpStore::await_welcome(const TcpAddress& address) {
  endpoint_->await(Clock::now() + deadline(), [&] {
    return membership_->welcome != Membership::Welcome::awaited || !membership_->broken.empty();
  });
  const std::lock_guard lock(membership_->mutex);
  membership_->require_whole();
  const std::string who = "rank " + std::to_string(rank());
  if (membership_->welcome == Membership::Welcome::awaited) {
    throw CollectiveHang(who + " found no rank 0 at " + text(address) + " " + within() + ": " +
                         membership_->reason);
  }
  if (membership_->welcome == Membership::Welcome::refused) {
    throw JoinRefused(who + " is refused at " + text(address) + ": " + membership_->reason);
  }
}

TcpStore::~TcpStore() {
  const bool failing = std::uncaught_exceptions() > 0;
  endpoint_->leave(
      shared({.kind = failing ? Message::Kind::failed : Message::Kind::ended, .from = rank()}));
  // The others may still need this rank's last post, which the system no longer sends again for
  // long once the process has ended.
  const Clock::duration patience = failing ? std::chrono::seconds(1) : deadline();
  endpoint_->await(Clock::now() + patience, [&] { return membership_->connections == 0; });
}

// ---- A round ------------------------------------------------------------------------------------

void TcpStore::put(const CollectiveCall& call, std::size_t filled) {
  Message post{.kind = Message::Kind::post, .from = rank(), .number = rounds(), .call = call};
  post.body.resize(filled);
  std::copy_n(outbox_.begin(), filled, post.body.begin());
  const SharedMessage message = shared(std::move(post));
  // A peer's answer may come before say() returns, and is compared with this rank's round.
  membership_->take_in(message);
  endpoint_->say(message);
}

void TcpStore::take() {
  const std::lock_guard lock(membership_->mutex);
  for (Membership::Peer& peer : membership_->peers) {
    if (!peer.rounds.empty()) peer.rounds.pop_front();
  }
}

// ---- Letters ------------------------------------------------------------------------------------

bool TcpStore::put_part(int peer, std::span<const std::byte> part) {
  {
    const std::lock_guard lock(membership_->mutex);
    if (std::exchange(membership_->peer(peer).has_part, true)) return false;
  }
  endpoint_->say(shared({.kind = Message::Kind::part,
                         .from = rank(),
                         .number = static_cast<std::uint32_t>(peer),
                         .body = {part.begin(), part.end()}}));
  return true;
}

bool TcpStore::take_part(int peer, std::vector<std::byte>& to) {
  SharedMessage part;
  {
    const std::lock_guard lock(membership_->mutex);
    part = std::exchange(membership_->peer(peer).part, nullptr);
  }
  if (part == nullptr) return false;
  to.insert(to.end(), part->body.begin(), part->body.end());
  endpoint_->say(shared(
      {.kind = Message::Kind::taken, .from = rank(), .number = static_cast<std::uint32_t>(peer)}));
  return true;
}

void TcpStore::wait_for_part(int peer) {
  endpoint_->await(Clock::now() + std::chrono::milliseconds(50), [&] {
    const Membership::Peer& of = membership_->peer(peer);
    return of.part != nullptr || of.state >= ended || membership_->server_is_lost ||
           !membership_->broken.empty();
  });
}

// ---- A round ------------------------------------------------------------------------------------

// The round that a peer has posted and this rank has not taken.
const Message& TcpStore::round_of(int peer) const {
  const std::lock_guard lock(membership_->mutex);
  const std::deque<SharedMessage>& rounds = membership_->peer(peer).rounds;
  if (rounds.empty()) throw BadFrame("rank " + std::to_string(peer) + " posted no round");
  return *rounds.front();
}

// A message that has arrived belongs to this rank, so nobody waits until it is taken.
Store::Progress TcpStore::progress_of(int peer, Mark mark) const {
  if (mark == Mark::taken) return {.rounds = rounds()};
  const std::lock_guard lock(membership_->mutex);
  membership_->require_whole();
  const Membership::Peer& of = membership_->peer(peer);
  // The cause is the first rank that left.
  const bool gone = of.state >= ended || membership_->server_is_lost;
  return {.gone = gone ? membership_->first_gone : -1, .rounds = of.posted};
}

void TcpStore::wait_for_change(int peer, Mark, std::uint32_t seen) {
  endpoint_->await(Clock::now() + std::chrono::milliseconds(50), [&] {
    const Membership::Peer& of = membership_->peer(peer);
    return of.posted != seen || of.state >= ended || membership_->server_is_lost ||
           !membership_->broken.empty();
  });
}

CollectiveCall TcpStore::call_of(int peer) const { return round_of(peer).call; }

std::span<const std::byte> TcpStore::posted_by(int peer) const { return round_of(peer).body; }

Store::Last TcpStore::last_of(int peer) const {
  const std::lock_guard lock(membership_->mutex);
  const Membership::Peer& of = membership_->peer(peer);
  return {.state = of.state, .posted = of.posted, .call = of.last};
}

// Returns rank 0 when no heartbeat of it came for half of the deadline.
int TcpStore::silent() const {
  const std::lock_guard lock(membership_->mutex);
  return rank() > 0 && Clock::now() - membership_->server_heard >= deadline() / 2 ? 0 : -1;
}

}  // namespace lockstep
