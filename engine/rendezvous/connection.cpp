#include "engine/rendezvous/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/rendezvous/store.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr std::uint32_t kMagic = 0x4c53'4e32;  // Identifies this layout.

struct Head {
  std::uint32_t magic = kMagic;
  Message::Kind kind = Message::Kind::hello;
  std::int32_t from = 0;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;  // The size of the body.
  CollectiveCall call = {};
};
static_assert(std::is_trivially_copyable_v<Head>);

}  // namespace

EncodedMessage encoded(const Message& message) {
  const Head head{.kind = message.kind,
                  .from = message.from,
                  .number = message.number,
                  .bytes = message.body.size(),
                  .call = message.call};
  std::vector<std::byte> bytes(sizeof head + message.body.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!message.body.empty())
    std::memcpy(bytes.data() + sizeof head, message.body.data(), message.body.size());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

std::vector<std::byte> as_bytes(const std::string& text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}
std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Connection::Connection(Socket socket) : socket_(std::move(socket)), head_(sizeof(Head)) {
  ErrorCode ignored;  // The next read reports a connection that is gone.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Connection::start(std::function<void(Message)> came, std::function<void()> closed) {
  came_ = std::move(came);
  closed_ = std::move(closed);
  read_head();
}

void Connection::read_head() {
  asio::async_read(
      socket_, asio::buffer(head_),
      [self = shared_from_this()](const ErrorCode& error, std::size_t) {
        Head head;
        std::memcpy(&head, self->head_.data(), sizeof head);
        if (error || head.magic != kMagic || head.kind > Message::Kind::failed ||
            head.bytes > Store::kOutbox) {
          return self->close();
        }
        head.call.purpose[sizeof head.call.purpose - 1] =
            head.call.stream[sizeof head.call.stream - 1] = '\0';
        self->message_ = {
            .kind = head.kind, .from = head.from, .number = head.number, .call = head.call};
        self->message_.body.resize(head.bytes);
        self->read_body();
      });
}

void Connection::read_body() {
  asio::async_read(socket_, asio::buffer(message_.body),
                   [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                     if (error) return self->close();
                     self->came_(std::move(self->message_));
                     if (self->open_) self->read_head();
                   });
}

void Connection::send(EncodedMessage encoded_message) {
  if (!open_ || finished_) return;
  out_.push_back(std::move(encoded_message));
  if (out_.size() == 1) write();
}

void Connection::write() {
  asio::async_write(socket_, asio::buffer(*out_.front()),
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

void Connection::close() {
  if (!std::exchange(open_, false)) return;
  ErrorCode ignored;
  socket_.close(ignored);
  if (closed_) closed_();
}

}  // namespace lockstep
