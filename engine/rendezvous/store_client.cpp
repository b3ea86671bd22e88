#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/endpoint.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// A rank that has no answer by then asks anew: the system would ask after ever longer times, or,
// where the other machine was started again, never.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr const char* kNoAnswer = "nothing answers there";

class StoreClient final : public Peers {
 public:
  StoreClient(asio::io_context& context, Membership& membership, TcpAddress server, RunIdentity run)
      : context_(context),
        membership_(membership),
        server_(std::move(server)),
        run_(std::move(run)) {
    connect();
  }
  void send(const SharedMessage& message) override { connection_->send(message); }
  bool are_all_there() const override { return true; }  // Rank 0 is: nothing is sent before.
  bool are_busy() const override { return connection_ && connection_->is_busy(); }
  void finish() override { connection_->finish(); }

 private:
  void connect() {
    handshake_.reset();
    const auto found = [this](const ErrorCode& error, const Tcp::resolver::results_type& places) {
      if (error) return try_again(error);
      const auto socket = std::make_shared<Connection::Socket>(context_);
      limit_wait([socket] {
        ErrorCode ignored;
        socket->close(ignored);
      });
      asio::async_connect(*socket, places,
                          [this, socket](const ErrorCode& failure, const Tcp::endpoint&) {
                            failure ? try_again(failure) : join(std::move(*socket));
                          });
    };
    resolver_.async_resolve(server_.host, std::to_string(server_.port), found);
  }
  // Until rank 0 has answered the hello: from then on this rank may be one of the run's, and is not
  // welcome a second time.
  void limit_wait(std::function<void()> give_up) {
    patience_.expires_after(kPatience);
    patience_.async_wait([this, give_up = std::move(give_up)](const ErrorCode& stopped) {
      if (!stopped && !handshake_) give_up();
    });
  }
  // Rank 0 may not be there yet.
  void try_again(const ErrorCode& error) {
    try_again(error == asio::error::operation_aborted ? std::string(kNoAnswer) : error.message());
  }
  void try_again(const std::string& why) {
    {
      const std::lock_guard lock(membership_.mutex);
      membership_.reason = why;
    }
    again_.expires_after(std::chrono::milliseconds(50));
    again_.async_wait([this](const ErrorCode& stopped) {
      if (!stopped) connect();
    });
  }
  void join(Connection::Socket socket) {
    // If nobody listens at an ephemeral port, a socket can connect to itself.
    ErrorCode error;
    if (socket.local_endpoint(error) == socket.remote_endpoint(error)) {
      return try_again(asio::error::make_error_code(asio::error::connection_refused));
    }
    membership_.count_connection(1);
    connection_ = std::make_shared<Connection>(std::move(socket), most_waiting(membership_.size()));
    connection_->start([this](Message message) { hear(std::move(message)); },
                       [this](const std::string& why) { lose(why); });
    limit_wait([connection = connection_] { connection->close(kNoAnswer); });
    own_random_ = random_digest();
    connection_->send(shared({.kind = Message::Kind::hello,
                              .from = membership_.rank,
                              .number = static_cast<std::uint32_t>(membership_.size()),
                              .body = {own_random_.begin(), own_random_.end()}}));
  }
  void hear(Message message) {
    {
      const std::lock_guard lock(membership_.mutex);
      membership_.server_heard = Store::Clock::now();
    }
    if (!handshake_) return hear_challenge(message);
    if (!welcomed_) return hear_answer(message);
    if (message.kind < Message::Kind::beat) throw BadFrame("rank 0 sent a frame out of turn");
    if (message.from < 0 || message.from >= membership_.size() ||
        message.from == membership_.rank) {
      throw BadFrame("rank 0 passed on words of rank " + std::to_string(message.from) +
                     ", which is none of the others");
    }
    if (message.kind == Message::Kind::beat) return;
    if (is_for_one(message) && message.number != static_cast<std::uint32_t>(membership_.rank))
      throw BadFrame("rank 0 passed on what is for another rank");
    membership_.require_next(message);
    membership_.take_in(shared(std::move(message)));
  }
  // Rank 0 has to prove that it has the key before this rank says of which run it is.
  void hear_challenge(const Message& message) {
    if (message.kind != Message::Kind::challenge || message.body.size() != 2 * sizeof(Digest))
      throw BadFrame("what listens there sent a frame out of turn");
    const auto [random, proof] = halves(message.body);
    handshake_.emplace(run_.key, membership_.rank, membership_.size(), own_random_, random);
    if (!are_same(proof, handshake_->proof_of_rank_0())) {
      answered(Membership::Welcome::refused, "what listens there does not have the same key");
      return connection_->close();
    }
    Bytes body = as_bytes(run_.name);
    const Digest own = handshake_->proof_of_rank(body);
    body.insert(body.begin(), own.begin(), own.end());
    connection_->send(
        shared({.kind = Message::Kind::proof, .from = membership_.rank, .body = std::move(body)}));
    connection_->seal(handshake_->seal_of_rank());
    connection_->reader().require_seals(handshake_->seal_of_rank_0());
  }
  void hear_answer(const Message& message) {
    if (message.kind == Message::Kind::refused) {
      return answered(Membership::Welcome::refused, message.body.empty()
                                                        ? "rank 0 has said why on its own terminal"
                                                        : printable(as_text(message.body)));
    }
    if (message.kind != Message::Kind::welcome)
      throw BadFrame("what listens there sent a frame out of turn");
    welcomed_ = true;
    connection_->reader().trust("rank 0");
    answered(Membership::Welcome::given, "");
    membership_.take_in(shared({.kind = Message::Kind::here, .from = 0}));
  }
  void answered(Membership::Welcome welcome, const std::string& reason) {
    const std::lock_guard lock(membership_.mutex);
    membership_.welcome = welcome;
    membership_.reason = reason;
    membership_.news.notify_all();
  }
  // `why` says that what came was no frame; else the connection has ended.
  void lose(const std::string& why) {
    if (welcomed_ && !why.empty()) membership_.break_off(why);
    Membership::Welcome answer{};
    {
      const std::lock_guard lock(membership_.mutex);
      answer = membership_.welcome;
      membership_.server_is_lost = answer == Membership::Welcome::given;
    }
    if (answer == Membership::Welcome::given)
      membership_.take_in(shared({.kind = Message::Kind::failed, .from = 0}));
    if (answer == Membership::Welcome::awaited)
      try_again(why.empty() ? asio::error::make_error_code(asio::error::connection_reset).message()
                            : why);
    membership_.count_connection(-1);
  }

  asio::io_context& context_;
  Membership& membership_;
  const TcpAddress server_;
  const RunIdentity run_;
  Tcp::resolver resolver_{context_};
  asio::steady_timer again_{context_}, patience_{context_};
  // Null until there is a connection; nothing is sent before the welcome.
  std::shared_ptr<Connection> connection_;
  Digest own_random_ = {};
  std::optional<Handshake> handshake_;  // Set once rank 0 has answered the hello.
  bool welcomed_ = false;
};

}  // namespace

std::unique_ptr<Peers> make_store_client(asio::io_context& context, Membership& membership,
                                         const TcpAddress& server, const RunIdentity& run) {
  return std::make_unique<StoreClient>(context, membership, server, run);
}

}  // namespace lockstep
