#include "engine/rendezvous/connection.h"

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

}  // namespace

Connection::Connection(Socket socket, std::size_t most_waiting)
    : socket_(std::move(socket)), most_waiting_(most_waiting) {
  ErrorCode ignored;  // The next read reports a connection that is gone.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
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

void Connection::send(SharedMessage message) {
  if (!open_ || finished_) return;
  if (out_.size() >= most_waiting_) {
    // Later: whoever sends is in the middle of its own work.
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
    return;
  }
  const FrameHead head = head_of(*message, seal_ ? &*seal_ : nullptr);
  out_.push_back({head, std::move(message)});
  if (out_.size() == 1) write();
}

void Connection::write() {
  const Outgoing& first = out_.front();
  const std::array<asio::const_buffer, 2> bytes{asio::buffer(&first.head, sizeof first.head),
                                                asio::buffer(first.message->body)};
  asio::async_write(socket_, bytes,
                    [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                      if (error || !self->open_) return self->close();
                      self->out_.pop_front();
                      if (!self->out_.empty()) return self->write();
                      if (self->finished_) self->finish();
                    });
}

void Connection::finish() {
  finished_ = true;
  if (!open_ || !out_.empty()) return;
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Connection::close(const std::string& why) {
  if (!std::exchange(open_, false)) return;
  ErrorCode ignored;
  socket_.close(ignored);
  if (closed_) closed_(why);
}

}  // namespace lockstep
