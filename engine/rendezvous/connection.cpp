#include "engine/rendezvous/connection.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "engine/rendezvous/collective_errors.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// The system sends lost packets again after ever longer times of up to two minutes, so that a run
// would miss its deadline although the network is back. This bounds them to a second from Linux
// 6.15 on; older systems take the first six times as equals. The system would give up after fifteen
// times, which now are a few seconds; it is to have the quarter of an hour that it takes by itself,
// since the deadline is the run's.
void send_again_soon(int file) {
  constexpr int kThinLinearTimeouts = 16, kUserTimeout = 18, kRtoMaxMs = 44;  // linux/tcp.h.
  constexpr std::pair<int, int> kOptions[] = {
      {kThinLinearTimeouts, 1}, {kUserTimeout, 15 * 60 * 1000}, {kRtoMaxMs, 1000}};
  for (const auto& [name, value] : kOptions)
    static_cast<void>(::setsockopt(file, IPPROTO_TCP, name, &value, sizeof value));
}

}  // namespace

Connection::Connection(Socket socket, std::size_t most_waiting)
    : socket_(std::move(socket)), most_waiting_(most_waiting) {
  ErrorCode ignored;  // The next read reports a connection that is gone.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  send_again_soon(socket_.native_handle());
}

void Connection::start(std::function<void(Message)> came,
                       std::function<void(const std::string&)> closed) {
  came_ = std::move(came);
  closed_ = std::move(closed);
  read();
}

void Connection::read() {
  const std::span<std::byte> wanted = reader_.wanted();
  asio::async_read(socket_, asio::buffer(wanted.data(), wanted.size()),
                   [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                     if (error || !self->open_) return self->close();
                     try {
                       if (self->reader_.came()) self->came_(self->reader_.take());
                     } catch (const BadFrame& bad) {
                       return self->close(bad.what());
                     }
                     if (self->open_) self->read();
                   });
}

void Connection::seal(Seal seal) {
  const std::lock_guard lock(mutex_);
  seal_ = std::move(seal);
}

bool Connection::is_busy() const {
  const std::lock_guard lock(mutex_);
  return !out_.empty();
}

std::array<asio::const_buffer, 2> Connection::Outgoing::left() const {
  return {asio::buffer(&head, sizeof head) + sent,
          asio::buffer(message->body) + (sent > sizeof head ? sent - sizeof head : 0)};
}

void Connection::send(SharedMessage message) {
  const std::lock_guard lock(mutex_);
  if (!open_ || finished_) return;
  if (out_.size() >= most_waiting_) {
    // Later: whoever sends is in the middle of its own work.
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
    return;
  }
  const FrameHead head = head_of(*message, seal_ ? &*seal_ : nullptr);
  out_.push_back({head, std::move(message)});
  if (out_.size() > 1) return;
  if (send_now(out_.front())) {
    out_.pop_front();
  } else {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      const std::lock_guard later(self->mutex_);
      if (self->open_) self->write();
    });
  }
}

// Whether all of it was sent. To wake another thread for it would take longer than to send it.
// Whoever serves the io_context meets an error again, and closes.
bool Connection::send_now(Outgoing& first) {
  std::array<iovec, 2> parts{};
  std::size_t count = 0, bytes = 0;
  for (const asio::const_buffer& part : first.left()) {
    parts[count++] = {const_cast<void*>(part.data()), part.size()};
    bytes += part.size();
  }
  msghdr call{};
  call.msg_iov = parts.data();
  call.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_.native_handle(), &call, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) first.sent = sent;
  return first.sent == bytes;
}

// The caller holds the mutex.
void Connection::write() {
  asio::async_write(
      socket_, out_.front().left(),
      [self = shared_from_this()](const ErrorCode& error, std::size_t) { self->wrote(error); });
}

void Connection::wrote(const ErrorCode& error) {
  if (error || !open_) return close();
  const std::lock_guard lock(mutex_);
  out_.pop_front();
  out_.empty() ? shut_down() : write();
}

void Connection::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  if (out_.empty()) shut_down();
}

// The caller holds the mutex.
void Connection::shut_down() {
  if (!finished_ || !open_) return;
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Connection::close(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(open_, false)) return;
    ErrorCode ignored;
    socket_.close(ignored);
  }
  if (closed_) closed_(why);
}

}  // namespace lockstep
