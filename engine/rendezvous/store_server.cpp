#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/endpoint.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// A connection that is not a rank's by then is closed.
constexpr auto kPatience = std::chrono::seconds(5);

class StoreServer final : public Peers {
 public:
  StoreServer(asio::io_context& context, Membership& membership, const TcpAddress& address,
              RunIdentity run, Store::Clock::duration beat)
      : context_(context),
        membership_(membership),
        run_(std::move(run)),
        ranks_(membership.size()),
        beat_(beat) {
    listen(address);
    warn(address);
    for (Door& door : doors_) accept(door);
    say_alive();
  }
  void send(const SharedMessage& message) override { pass_on(message, 0); }
  bool are_all_there() const override { return are_all_there_; }
  bool are_busy() const override {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.guest != nullptr && rank.guest->connection->is_busy();
    });
  }
  void finish() override {
    close_doors();
    next_beat_.cancel();
    for (const Rank& rank : ranks_) {
      if (rank.guest != nullptr) rank.guest->connection->finish();
    }
  }

 private:
  // Where the server listens.
  struct Door {
    explicit Door(asio::io_context& context, const Tcp& protocol)
        : acceptor(context, protocol), pause(context) {}
    Tcp::acceptor acceptor;
    asio::steady_timer pause;  // After an error.
  };
  // Whoever has connected; `rank` is -1 until it is welcome.
  struct Guest {
    Guest(asio::io_context& context, std::shared_ptr<Connection> connection)
        : connection(std::move(connection)), patience(context) {}
    std::shared_ptr<Connection> connection;
    asio::steady_timer patience;
    Message hello;
    std::optional<Handshake> handshake;  // Once it has said hello.
    int rank = -1;
    bool refused = false;
  };
  using GuestPointer = std::shared_ptr<Guest>;
  struct Rank {
    GuestPointer guest = nullptr;         // Null until the rank has joined.
    std::deque<SharedMessage> kept = {};  // Messages to send when the rank joins.
  };
  Rank& rank(int r) { return at(ranks_, r); }

  // Listens at the addresses of this machine among those that the host's name stands for.
  void listen(const TcpAddress& at) {
    ErrorCode error;
    std::set<Tcp::endpoint> places;
    for (const auto& place :
         Tcp::resolver(context_).resolve(at.host, std::to_string(at.port), error))
      places.insert(place.endpoint());
    for (const Tcp::endpoint& place : places) {
      if (error = open_door(place); error && !is_elsewhere(error)) break;
    }
    if (!doors_.empty() && (!error || is_elsewhere(error))) return;
    throw std::runtime_error(
        "rank 0 cannot listen at port " + std::to_string(at.port) + " of " + at.host + ": " +
        error.message() +
        (is_elsewhere(error) ? "; with --meeting 0.0.0.0:PORT it listens at all addresses" : ""));
  }
  // Whether the address is none of this machine's, which may have no IPv6.
  static bool is_elsewhere(const ErrorCode& error) {
    return error == boost::system::errc::address_not_available ||
           error == asio::error::address_family_not_supported;
  }
  ErrorCode open_door(const Tcp::endpoint& place) try {
    Door door(context_, place.protocol());
    door.acceptor.set_option(Tcp::acceptor::reuse_address(true));
    door.acceptor.bind(place);
    door.acceptor.listen();
    doors_.push_back(std::move(door));
    return {};
  } catch (const boost::system::system_error& error) {
    return error.code();
  }
  // Warns of what a user finds out too late otherwise.
  void warn(const TcpAddress& at) {
    const auto address_of = [](const Door& door) {
      return door.acceptor.local_endpoint().address();
    };
    const bool inside = std::all_of(doors_.begin(), doors_.end(), [&](const Door& door) {
      return address_of(door).is_loopback();
    });
    if (!inside && run_.key.empty()) {
      tell("there is no key (LOCKSTEP_MEETING_KEY): whoever reaches " + text(at) +
           " can take the place of a rank, and change what is computed");
    }
    ErrorCode is_name;
    asio::ip::make_address(at.host, is_name);
    if (inside && is_name && at.host != "localhost") {
      tell(at.host + " is " + address_of(doors_.front()).to_string() +
           " on this machine, which no other reaches: --meeting takes ADDRESS:PORT");
    }
  }
  void accept(Door& door) {
    door.acceptor.async_accept([this, &door](const ErrorCode& error, Connection::Socket socket) {
      if (!door.acceptor.is_open()) return;
      if (error) return rest(door, error);
      greet(std::move(socket));
      accept(door);
    });
  }
  // An error such as "too many open files" lasts: to ask again at once would take a core.
  void rest(Door& door, const ErrorCode& error) {
    if (!std::exchange(has_rested_, true))
      tell("cannot take a connection, and will try again: " + error.message());
    close_oldest_guest();  // It may have what is lacking.
    door.pause.expires_after(std::chrono::milliseconds(100));
    door.pause.async_wait([this, &door](const ErrorCode& stopped) {
      if (!stopped && door.acceptor.is_open()) accept(door);
    });
  }
  // Each door stays in the list, since its handlers still refer to it.
  void close_doors() {
    ErrorCode ignored;
    for (Door& door : doors_) {
      door.acceptor.close(ignored);
      door.pause.cancel();
    }
  }
  // For the user of rank 0. Strangers can cause any number of lines, of which the first are told.
  void tell(const std::string& words) {
    constexpr int kMost = 20;
    if (++told_ > kMost) return;
    const std::string end = told_ == kMost ? " (no more of this is told)\n" : "\n";
    std::fputs(("lockstep: rank 0: " + printable(words) + end).c_str(), stderr);
  }

  // ---- Before the welcome ----------------------------------------------------------------------

  // Strangers may connect as often as they like, so the oldest of those that are not welcome gives
  // way: an honest rank is welcome within moments, or comes again.
  void greet(Connection::Socket socket) {
    if (guests_.size() >= most_waiting(membership_.size())) close_oldest_guest();
    const auto connection =
        std::make_shared<Connection>(std::move(socket), most_waiting(membership_.size()));
    const auto guest = std::make_shared<Guest>(context_, connection);
    guests_.push_back(guest);
    const std::weak_ptr<Guest> weak = guest;
    guest->patience.expires_after(kPatience);
    guest->patience.async_wait([weak](const ErrorCode& stopped) {
      const GuestPointer late = weak.lock();
      if (!stopped && late && late->rank < 0) late->connection->close();
    });
    connection->start(
        [this, weak](Message message) {
          if (const GuestPointer from = weak.lock()) hear(from, std::move(message));
        },
        [this, weak](const std::string& why) {
          if (const GuestPointer from = weak.lock()) lose(from, why);
        });
  }
  void close_oldest_guest() {
    if (guests_.empty()) return;
    const GuestPointer oldest = guests_.front();
    oldest->connection->close();
  }
  // After the handshake messages are from one rank.
  void hear(const GuestPointer& guest, Message message) {
    if (guest->refused) throw BadFrame("a stranger goes on after a refusal");
    if (!guest->handshake) return hear_hello(guest, std::move(message));
    if (guest->rank < 0) return hear_proof(guest, message);
    if (message.from != guest->rank) return;
    if (message.kind < Message::Kind::post)
      throw BadFrame("rank " + std::to_string(message.from) + " sent a frame out of turn");
    const bool is_own = !is_for_one(message) || message.number == 0;
    if (is_own) membership_.require_next(message);
    const SharedMessage to_all = shared(std::move(message));
    pass_on(to_all, guest->rank);
    if (is_own) membership_.take_in(to_all);
  }
  void hear_hello(const GuestPointer& guest, Message message) {
    if (message.kind != Message::Kind::hello || message.body.size() != sizeof(Digest))
      throw BadFrame("a stranger says no hello");
    const Digest random = random_digest();
    guest->hello = std::move(message);
    guest->handshake.emplace(run_.key, guest->hello.from, guest->hello.number, guest->hello.body,
                             random);
    const Digest proof = guest->handshake->proof_of_rank_0();
    Bytes body(random.begin(), random.end());
    body.insert(body.end(), proof.begin(), proof.end());
    guest->connection->send(shared({.kind = Message::Kind::challenge, .body = std::move(body)}));
    guest->connection->seal(guest->handshake->seal_of_rank_0());
  }
  void hear_proof(const GuestPointer& guest, const Message& message) {
    const std::size_t size = std::min(sizeof(Digest), message.body.size());
    const std::span proof = std::span(message.body).first(size),
                    run = std::span(message.body).subspan(size);
    if (message.kind != Message::Kind::proof ||
        !are_same(proof, guest->handshake->proof_of_rank(run))) {
      throw BadFrame("a stranger does not prove that it has the key");
    }
    guest->connection->reader().require_seals(guest->handshake->seal_of_rank());
    const std::string why = refusal(guest->hello, as_text(run));
    if (why.empty()) return welcome(guest, guest->hello.from);
    tell("a process is refused: " + why);
    guest->refused = true;
    // Without a key it may be a stranger, which learns nothing.
    guest->connection->send(
        shared({.kind = Message::Kind::refused, .body = as_bytes(run_.key.empty() ? "" : why)}));
    guest->connection->finish();  // The other side reads it and closes, or is closed.
  }
  void welcome(const GuestPointer& guest, int r) {
    rank(r).guest = guest;
    const auto has_joined = [](const Rank& one) { return one.guest != nullptr; };
    const bool all_there = std::all_of(ranks_.begin() + 1, ranks_.end(), has_joined);
    // Before the last rank knows that it is welcome, so that none finds us still listening.
    if (all_there) close_doors();
    guest->connection->send(shared({.kind = Message::Kind::welcome}));
    for (const SharedMessage& message : std::exchange(rank(r).kept, {}))
      guest->connection->send(message);
    guest->rank = r;
    guest->connection->reader().trust("rank " + std::to_string(r));
    guests_.remove(guest);
    membership_.count_connection(1);
    const SharedMessage there = shared({.kind = Message::Kind::here, .from = r});
    pass_on(there, r);
    are_all_there_ = all_there;
    membership_.take_in(there);
  }
  std::string refusal(const Message& hello, const std::string& run) {
    const std::string who = "rank " + std::to_string(hello.from);
    if (run != run_.name) return who + " is of run '" + run + "', and this is '" + run_.name + "'";
    const std::string ranks = std::to_string(ranks_.size());
    if (hello.number != ranks_.size()) {
      return who + " is one of " + std::to_string(hello.number) + " ranks, and here are " + ranks;
    }
    if (hello.from <= 0 || hello.from >= membership_.size())
      return who + " is none of the " + ranks + " ranks";
    return rank(hello.from).guest == nullptr ? "" : who + " is there already";
  }

  // ---- After it --------------------------------------------------------------------------------

  // Sends to all but the rank that it comes from.
  void pass_on(const SharedMessage& message, int from) {
    for (int r = 1; r < membership_.size(); ++r) {
      if (r == from || (is_for_one(*message) && message->number != static_cast<std::uint32_t>(r)))
        continue;
      rank(r).guest == nullptr ? rank(r).kept.push_back(message)
                               : rank(r).guest->connection->send(message);
    }
  }
  // Heartbeats distinguish a stopped server, behind which nobody is heard, from a rank that does
  // not come. Where other messages wait, they say as much.
  void say_alive() {
    next_beat_.expires_after(beat_);
    next_beat_.async_wait([this](const ErrorCode& stopped) {
      if (stopped) return;
      const SharedMessage alive = shared({.kind = Message::Kind::beat});
      for (const Rank& rank : ranks_) {
        if (rank.guest != nullptr && !rank.guest->connection->is_busy())
          rank.guest->connection->send(alive);
      }
      say_alive();
    });
  }
  // A connection that ends without a last message is a failure; after a last message this changes
  // nothing. `why` says that what came was no frame: then this run cannot go on.
  void lose(const GuestPointer& guest, const std::string& why) {
    guest->patience.cancel();
    if (guest->rank < 0) {
      if (guest->handshake && !guest->refused)
        tell("a process left, or was closed, before it had joined: it may have another key");
      guests_.remove(guest);
      return;
    }
    if (!why.empty()) membership_.break_off(why);
    const SharedMessage gone = shared({.kind = Message::Kind::failed, .from = guest->rank});
    pass_on(gone, guest->rank);
    membership_.take_in(gone);
    membership_.count_connection(-1);
  }

  asio::io_context& context_;
  Membership& membership_;
  const RunIdentity run_;
  std::list<Door> doors_;
  bool has_rested_ = false;
  int told_ = 0;
  std::list<GuestPointer> guests_;  // Guests that are not welcome yet, the oldest first.
  std::vector<Rank> ranks_;
  std::atomic<bool> are_all_there_ = false;  // `ranks_` stays as it is from then on.
  const Store::Clock::duration beat_;
  asio::steady_timer next_beat_{context_};
};

}  // namespace

std::unique_ptr<Peers> make_store_server(asio::io_context& context, Membership& membership,
                                         const TcpAddress& address, const RunIdentity& run,
                                         Store::Clock::duration beat) {
  return std::make_unique<StoreServer>(context, membership, address, run, beat);
}

}  // namespace lockstep
