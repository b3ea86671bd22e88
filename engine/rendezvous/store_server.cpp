#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>

#include "engine/rendezvous/endpoint.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class StoreServer final : public Peers {
 public:
  StoreServer(asio::io_context& context, Membership& membership, std::uint16_t port,
              std::string run, Store::Clock::duration beat)
      : context_(context),
        membership_(membership),
        run_(std::move(run)),
        ranks_(membership.size()),
        beat_(beat) {
    listen(port);
    accept();
    say_alive();
  }
  void send(const EncodedMessage& encoded_message) override { pass_on(encoded_message, 0); }
  void finish() override {
    ErrorCode ignored;
    acceptor_->close(ignored);
    next_beat_.cancel();
    for (const Rank& rank : ranks_) {
      if (rank.connection != nullptr) rank.connection->finish();
    }
  }

 private:
  struct Rank {
    std::shared_ptr<Connection> connection = nullptr;  // Null until the rank has joined.
    std::deque<EncodedMessage> kept = {};              // Messages to send when the rank joins.
  };
  Rank& rank(int r) { return at(ranks_, r); }

  // Listens at all addresses of this machine.
  void listen(std::uint16_t port) {
    const auto bind = [&](const Tcp& protocol) {
      acceptor_.emplace(context_, protocol);
      if (protocol == Tcp::v6()) acceptor_->set_option(asio::ip::v6_only(false));
      acceptor_->set_option(Tcp::acceptor::reuse_address(true));
      acceptor_->bind({protocol, port});
      acceptor_->listen();
    };
    try {
      try {
        bind(Tcp::v6());
      } catch (const boost::system::system_error& error) {
        if (error.code() == asio::error::address_in_use) throw;
        bind(Tcp::v4());
      }
    } catch (const boost::system::system_error& error) {
      throw std::runtime_error("rank 0 cannot listen at port " + std::to_string(port) + ": " +
                               error.code().message());
    }
  }
  void accept() {
    acceptor_->async_accept([this](const ErrorCode& error, Connection::Socket socket) {
      if (!acceptor_->is_open()) return;
      if (!error) greet(std::make_shared<Connection>(std::move(socket)));
      accept();
    });
  }

  // The first message says which rank connects; the others are from that rank.
  void greet(const std::shared_ptr<Connection>& connection) {
    const auto who = std::make_shared<int>(-1);
    connection->start(
        [this, who, from = std::weak_ptr(connection)](Message message) {
          if (*who < 0) {
            *who = welcome(message, from.lock());
          } else if (message.from == *who && message.kind >= Message::Kind::post) {
            pass_on(encoded(message), message.from);
            membership_.take_in(std::move(message));
          }
        },
        [this, who] {
          if (*who > 0) lose(*who);
        });
  }
  // Returns the rank that joins, or -1 if it is refused.
  int welcome(const Message& hello, const std::shared_ptr<Connection>& connection) {
    if (const std::string why = refusal(hello); !why.empty()) {
      connection->send(encoded({.kind = Message::Kind::refused, .body = as_bytes(why)}));
      connection->finish();
      return -1;
    }
    connection->send(encoded({.kind = Message::Kind::welcome}));
    for (const EncodedMessage& encoded_message : std::exchange(rank(hello.from).kept, {}))
      connection->send(encoded_message);
    rank(hello.from).connection = connection;
    membership_.count_connection(1);
    const Message there{.kind = Message::Kind::here, .from = hello.from};
    pass_on(encoded(there), hello.from);
    membership_.take_in(there);
    return hello.from;
  }
  std::string refusal(const Message& hello) {
    const std::string who = "rank " + std::to_string(hello.from), run = as_text(hello.body);
    if (hello.kind != Message::Kind::hello) return "it does not say who it is";
    if (run != run_) return who + " is of run '" + run + "', and this is '" + run_ + "'";
    const std::string ranks = std::to_string(ranks_.size());
    if (hello.number != ranks_.size()) {
      return who + " is one of " + std::to_string(hello.number) + " ranks, and here are " + ranks;
    }
    if (hello.from <= 0 || hello.from >= membership_.size())
      return who + " is none of the " + ranks + " ranks";
    return rank(hello.from).connection == nullptr ? "" : who + " is there already";
  }
  // Sends to all but the rank that it comes from.
  void pass_on(const EncodedMessage& encoded_message, int from) {
    for (int r = 1; r < membership_.size(); ++r) {
      if (r == from) continue;
      rank(r).connection == nullptr ? rank(r).kept.push_back(encoded_message)
                                    : rank(r).connection->send(encoded_message);
    }
  }
  // Heartbeats distinguish a stopped server, behind which nobody is heard, from a rank that does
  // not come.
  void say_alive() {
    next_beat_.expires_after(beat_);
    next_beat_.async_wait([this](const ErrorCode& stopped) {
      if (stopped) return;
      const EncodedMessage alive = encoded({.kind = Message::Kind::beat});
      for (const Rank& rank : ranks_) {
        if (rank.connection != nullptr) rank.connection->send(alive);
      }
      say_alive();
    });
  }
  // A connection that ends without a last message is a failure; after a last message this changes
  // nothing.
  void lose(int r) {
    const Message gone{.kind = Message::Kind::failed, .from = r};
    pass_on(encoded(gone), r);
    membership_.take_in(gone);
    membership_.count_connection(-1);
  }

  asio::io_context& context_;
  Membership& membership_;
  const std::string run_;
  std::optional<Tcp::acceptor> acceptor_;
  std::vector<Rank> ranks_;
  const Store::Clock::duration beat_;
  asio::steady_timer next_beat_{context_};
};

}  // namespace

std::unique_ptr<Peers> make_store_server(asio::io_context& context, Membership& membership,
                                         std::uint16_t port, const std::string& run,
                                         Store::Clock::duration beat) {
  return std::make_unique<StoreServer>(context, membership, port, run, beat);
}

}  // namespace lockstep
