#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>

#include "engine/rendezvous/network_side.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Hub final : public Connections {
 public:
  Hub(asio::io_context& context, Roll& roll, std::uint16_t port, std::string run, Meeting::Clock::duration beat)
      : context_(context),
        roll_(roll),
        run_(std::move(run)),
        ranks_(static_cast<std::size_t>(roll.size())),
        beat_(beat) {
    listen(port);
    accept();
    say_alive();
  }
  void send(const Packet& packet) override { pass_on(packet, 0); }
  void finish() override {
    ErrorCode ignored;
    acceptor_->close(ignored);
    next_beat_.cancel();
    for (const Rank& rank : ranks_) {
      if (rank.link != nullptr) rank.link->finish();
    }
  }

 private:
  struct Rank {
    std::shared_ptr<Link> link = nullptr;  // Once it has come.
    std::deque<Packet> kept = {};          // For when it comes.
  };
  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  // At all addresses of this machine.
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
      throw std::runtime_error("rank 0 cannot listen at port " + std::to_string(port) + ": " + error.code().message());
    }
  }
  void accept() {
    acceptor_->async_accept([this](const ErrorCode& error, Link::Socket socket) {
      if (!acceptor_->is_open()) return;
      if (!error) greet(std::make_shared<Link>(std::move(socket)));
      accept();
    });
  }

  // The first frame says who comes; the others are of that rank.
  void greet(const std::shared_ptr<Link>& link) {
    const auto who = std::make_shared<int>(-1);
    link->start(
        [this, who, from = std::weak_ptr(link)](Frame frame) {
          if (*who < 0) {
            *who = welcome(frame, from.lock());
          } else if (frame.from == *who && frame.kind >= Frame::Kind::post) {
            pass_on(packed(frame), frame.from);
            roll_.take_in(std::move(frame));
          }
        },
        [this, who] {
          if (*who > 0) lose(*who);
        });
  }
  // The rank that comes, or -1 for one that is refused.
  int welcome(const Frame& hello, const std::shared_ptr<Link>& link) {
    if (const std::string why = refusal(hello); !why.empty()) {
      link->send(packed({.kind = Frame::Kind::refused, .body = as_bytes(why)}));
      link->finish();
      return -1;
    }
    link->send(packed({.kind = Frame::Kind::welcome}));
    for (const Packet& packet : std::exchange(rank(hello.from).kept, {})) link->send(packet);
    rank(hello.from).link = link;
    roll_.count_connection(1);
    const Frame there{.kind = Frame::Kind::here, .from = hello.from};
    pass_on(packed(there), hello.from);
    roll_.take_in(there);
    return hello.from;
  }
  std::string refusal(const Frame& hello) {
    const std::string who = "rank " + std::to_string(hello.from), run = as_text(hello.body);
    if (hello.kind != Frame::Kind::hello) return "it does not say who it is";
    if (run != run_) return who + " is of run '" + run + "', and this is '" + run_ + "'";
    const std::string ranks = std::to_string(ranks_.size());
    if (hello.number != ranks_.size()) {
      return who + " is one of " + std::to_string(hello.number) + " ranks, and here are " + ranks;
    }
    if (hello.from <= 0 || hello.from >= roll_.size()) return who + " is none of the " + ranks + " ranks";
    return rank(hello.from).link == nullptr ? "" : who + " is there already";
  }
  // To all but the one that it is from.
  void pass_on(const Packet& packet, int from) {
    for (int r = 1; r < roll_.size(); ++r) {
      if (r == from) continue;
      rank(r).link == nullptr ? rank(r).kept.push_back(packet) : rank(r).link->send(packet);
    }
  }
  // So that a stopped hub, behind which nobody is heard, is not taken for a rank that does not come.
  void say_alive() {
    next_beat_.expires_after(beat_);
    next_beat_.async_wait([this](const ErrorCode& stopped) {
      if (stopped) return;
      const Packet alive = packed({.kind = Frame::Kind::beat});
      for (const Rank& rank : ranks_) {
        if (rank.link != nullptr) rank.link->send(alive);
      }
      say_alive();
    });
  }
  // A connection that ends without a last word is a failure; behind one this changes nothing.
  void lose(int r) {
    const Frame gone{.kind = Frame::Kind::failed, .from = r};
    pass_on(packed(gone), r);
    roll_.take_in(gone);
    roll_.count_connection(-1);
  }

  asio::io_context& context_;
  Roll& roll_;
  const std::string run_;
  std::optional<Tcp::acceptor> acceptor_;
  std::vector<Rank> ranks_;
  const Meeting::Clock::duration beat_;
  asio::steady_timer next_beat_{context_};
};

}  // namespace

std::unique_ptr<Connections> make_hub(asio::io_context& context, Roll& roll, std::uint16_t port, const std::string& run,
                                      Meeting::Clock::duration beat) {
  return std::make_unique<Hub>(context, roll, port, run, beat);
}

}  // namespace lockstep
