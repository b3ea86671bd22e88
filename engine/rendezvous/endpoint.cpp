#include "engine/rendezvous/endpoint.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

namespace lockstep {

void Membership::take_in(const SharedMessage& message) {
  {
    const std::lock_guard lock(mutex);
    Peer& from = peer(message->from);
    if (message->kind == Message::Kind::post) {
      from.posted = message->number;
      from.last = message->call;
      from.rounds.push_back(message);
    } else if (message->kind == Message::Kind::part) {
      from.part = message;
    } else if (message->kind == Message::Kind::taken) {
      from.has_part = false;
    } else if (from.state < Store::ended) {
      const bool ended = message->kind == Message::Kind::ended,
                 failed = message->kind == Message::Kind::failed;
      from.state = ended ? Store::ended : failed ? Store::failed : Store::here;
      if ((ended || failed) && first_gone < 0) first_gone = message->from;
    }
  }
  news.notify_all();
}

void Membership::count_connection(int change) {
  const std::lock_guard lock(mutex);
  connections += change;
  news.notify_all();
}

void Membership::break_off(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (broken.empty()) broken = why;
  news.notify_all();
}

void Membership::require_whole() const {
  if (!broken.empty()) throw BadFrame(broken);
}

void Membership::require_next(const Message& message) {
  if (message.kind != Message::Kind::post && !is_for_one(message)) return;
  const std::lock_guard lock(mutex);
  const Peer& from = peer(message.from);
  const std::uint32_t own = peer(rank).posted;
  if (is_for_one(message)) {
    const bool is_next = message.kind == Message::Kind::part
                             ? from.part == nullptr && message.body.size() <= Store::kMostOfPart
                             : from.has_part && message.body.empty();
    if (from.state == Store::here && is_next) return;
    throw BadFrame("rank " + std::to_string(message.from) + " sent a part of a letter out of turn");
  }
  const auto refuse = [&](const std::string& why) {
    throw BadFrame("rank " + std::to_string(message.from) + " posted " + why);
  };
  const auto round = [&] { return "round " + std::to_string(message.number); };
  if (from.state == Store::absent) refuse("a round without having come");
  if (from.state != Store::here) refuse("a round after it had left");
  if (message.number != from.posted + 1)
    refuse(round() + ", and " + std::to_string(from.posted + 1) + " is its next");
  if (static_cast<std::int32_t>(message.number - own) > 1)  // Rounds may pass 32 bits.
    refuse(round() + " before round " + std::to_string(own + 1) + " had all posts");
}

Endpoint::Endpoint(Membership& membership, const TcpAddress& address, const RunIdentity& run,
                   Store::Clock::duration beat)
    : membership_(membership),
      peers_(membership.rank == 0 ? make_store_server(context_, membership, address, run, beat)
                                  : make_store_client(context_, membership, address, run)),
      thread_([this] { serve_while_rank_is_away(); }) {}

// What is thrown here has nobody above it who could catch it; the ranks' threads learn it where
// they wait.
void Endpoint::serve_one(Store::Clock::time_point until) {
  try {
    context_.run_one_until(until);
  } catch (const std::bad_alloc&) {
    membership_.break_off("out of memory");
  } catch (const std::exception& error) {
    membership_.break_off(std::string("the connections failed: ") + error.what());
  }
}

// The caller holds the membership's mutex, and nobody else serves.
void Endpoint::serve_until(std::unique_lock<std::mutex>& lock, Store::Clock::time_point until,
                           const std::function<bool()>& done) {
  is_served_ = true;
  while (!done() && Store::Clock::now() < until) {
    lock.unlock();
    serve_one(until);
    lock.lock();
  }
  is_served_ = false;
}

// A rank that waits serves its own connections: to wake it for each message that another thread has
// read would take longer than to read it.
void Endpoint::await(Store::Clock::time_point until, const std::function<bool()>& done) {
  std::unique_lock lock(membership_.mutex);
  rank_waits_ = true;
  ++waits_;
  while (!done() && Store::Clock::now() < until) {
    if (is_served_) {
      membership_.news.wait_until(lock, until);
    } else {
      serve_until(lock, until, done);
    }
  }
  rank_waits_ = false;
  // The endpoint's thread sends at once what the system has not taken yet, since this rank may not
  // wait again for long.
  is_needed_ = !is_served_ && (!peers_->are_all_there() || peers_->are_busy());
  if (is_needed_) change_.notify_one();
}

// Others need this rank's connections too: to hear that it lives, to join, and to leave.
void Endpoint::serve_while_rank_is_away() {
  constexpr auto kAway = std::chrono::milliseconds(10);
  std::unique_lock lock(membership_.mutex);
  while (!ended_) {
    const std::uint64_t seen = waits_;
    change_.wait_for(lock, kAway, [this] { return is_needed_ || ended_; });
    const bool is_away = !rank_waits_ && (is_needed_ || waits_ == seen);
    is_needed_ = false;
    if (!is_away || is_served_) continue;
    serve_until(lock, Store::Clock::time_point::max(), [this] { return rank_waits_ || ended_; });
    membership_.news.notify_all();  // The rank may serve from now on.
  }
}

Endpoint::~Endpoint() {
  {
    const std::lock_guard lock(membership_.mutex);
    ended_ = true;
  }
  change_.notify_one();
  context_.stop();
  thread_.join();
}

void Endpoint::say(SharedMessage message) {
  if (unsent_ == 0 && peers_->are_all_there()) return peers_->send(message);
  ++unsent_;
  boost::asio::post(context_, [this, message = std::move(message)] {
    peers_->send(message);
    --unsent_;
  });
}

void Endpoint::leave(SharedMessage word) {
  boost::asio::post(context_, [this, word = std::move(word)] {
    peers_->send(word);
    peers_->finish();
  });
}

}  // namespace lockstep
