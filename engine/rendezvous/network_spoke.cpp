#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "engine/rendezvous/network_side.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Spoke final : public Connections {
 public:
  Spoke(asio::io_context& context, Roll& roll, NetworkAddress hub, std::string run)
      : context_(context), roll_(roll), hub_(std::move(hub)), run_(std::move(run)) {
    connect();
  }
  void send(const Packet& packet) override { link_->send(packet); }
  void finish() override { link_->finish(); }

 private:
  void connect() {
    const auto found = [this](const ErrorCode& error, const Tcp::resolver::results_type& places) {
      if (error) return try_again(error);
      const auto socket = std::make_shared<Link::Socket>(context_);
      asio::async_connect(*socket, places, [this, socket](const ErrorCode& failure, const Tcp::endpoint&) {
        failure ? try_again(failure) : join(std::move(*socket));
      });
    };
    resolver_.async_resolve(hub_.host, std::to_string(hub_.port), found);
  }
  // Rank 0 may not be there yet.
  void try_again(const ErrorCode& error) {
    {
      const std::lock_guard lock(roll_.mutex);
      roll_.reason = error.message();
    }
    again_.expires_after(std::chrono::milliseconds(50));
    again_.async_wait([this](const ErrorCode& stopped) {
      if (!stopped) connect();
    });
  }
  void join(Link::Socket socket) {
    // Where nobody listens at a port that the system may give to who connects, a socket can meet itself.
    ErrorCode error;
    if (socket.local_endpoint(error) == socket.remote_endpoint(error)) {
      return try_again(asio::error::make_error_code(asio::error::connection_refused));
    }
    roll_.count_connection(1);
    link_ = std::make_shared<Link>(std::move(socket));
    link_->start([this](Frame frame) { hear(std::move(frame)); }, [this] { lose(); });
    link_->send(packed({.kind = Frame::Kind::hello,
                        .from = roll_.rank,
                        .number = static_cast<std::uint32_t>(roll_.size()),
                        .body = as_bytes(run_)}));
  }
  void hear(Frame frame) {
    {
      const std::lock_guard lock(roll_.mutex);
      roll_.hub_heard = Meeting::Clock::now();
    }
    if (frame.kind == Frame::Kind::refused) return answered(Roll::Welcome::refused, as_text(frame.body));
    if (frame.kind == Frame::Kind::welcome) answered(Roll::Welcome::given, "");
    const bool known = frame.from >= 0 && frame.from < roll_.size() && frame.from != roll_.rank;
    if (known && frame.kind != Frame::Kind::beat) roll_.take_in(std::move(frame));
  }
  void answered(Roll::Welcome welcome, const std::string& reason) {
    const std::lock_guard lock(roll_.mutex);
    roll_.welcome = welcome;
    roll_.reason = reason;
    roll_.news.notify_all();
  }
  void lose() {
    Roll::Welcome answer{};
    {
      const std::lock_guard lock(roll_.mutex);
      answer = roll_.welcome;
      roll_.hub_is_lost = answer == Roll::Welcome::given;
    }
    if (answer == Roll::Welcome::given) roll_.take_in({.kind = Frame::Kind::failed, .from = 0});
    if (answer == Roll::Welcome::awaited) try_again(asio::error::make_error_code(asio::error::connection_reset));
    roll_.count_connection(-1);
  }

  asio::io_context& context_;
  Roll& roll_;
  const NetworkAddress hub_;
  const std::string run_;
  Tcp::resolver resolver_{context_};
  asio::steady_timer again_{context_};
  std::shared_ptr<Link> link_;  // Once there is a connection; nothing is said before the welcome.
};

}  // namespace

std::unique_ptr<Connections> make_spoke(asio::io_context& context, Roll& roll, const NetworkAddress& hub,
                                        const std::string& run) {
  return std::make_unique<Spoke>(context, roll, hub, run);
}

}  // namespace lockstep
