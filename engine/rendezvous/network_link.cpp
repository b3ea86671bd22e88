#include "engine/rendezvous/network_link.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/rendezvous/meeting.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr std::uint32_t kMagic = 0x4c53'4e32;  // Of this layout.

struct Head {
  std::uint32_t magic = kMagic;
  Frame::Kind kind = Frame::Kind::hello;
  std::int32_t from = 0;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;  // Of the body.
  CollectiveCall call = {};
};
static_assert(std::is_trivially_copyable_v<Head>);

}  // namespace

Packet packed(const Frame& frame) {
  const Head head{
      .kind = frame.kind, .from = frame.from, .number = frame.number, .bytes = frame.body.size(), .call = frame.call};
  std::vector<std::byte> bytes(sizeof head + frame.body.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!frame.body.empty()) std::memcpy(bytes.data() + sizeof head, frame.body.data(), frame.body.size());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

std::vector<std::byte> as_bytes(const std::string& text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}
std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Link::Link(Socket socket) : socket_(std::move(socket)), head_(sizeof(Head)) {
  ErrorCode ignored;  // A connection that is gone shows when it is read.
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Link::start(std::function<void(Frame)> came, std::function<void()> closed) {
  came_ = std::move(came);
  closed_ = std::move(closed);
  read_head();
}

void Link::read_head() {
  asio::async_read(socket_, asio::buffer(head_), [self = shared_from_this()](const ErrorCode& error, std::size_t) {
    Head head;
    std::memcpy(&head, self->head_.data(), sizeof head);
    if (error || head.magic != kMagic || head.kind > Frame::Kind::failed || head.bytes > Meeting::kOutbox) {
      return self->close();
    }
    head.call.purpose[sizeof head.call.purpose - 1] = head.call.stream[sizeof head.call.stream - 1] = '\0';
    self->frame_ = {.kind = head.kind, .from = head.from, .number = head.number, .call = head.call};
    self->frame_.body.resize(head.bytes);
    self->read_body();
  });
}

void Link::read_body() {
  asio::async_read(socket_, asio::buffer(frame_.body),
                   [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                     if (error) return self->close();
                     self->came_(std::move(self->frame_));
                     if (self->open_) self->read_head();
                   });
}

void Link::send(Packet packet) {
  if (!open_ || finished_) return;
  out_.push_back(std::move(packet));
  if (out_.size() == 1) write();
}

void Link::write() {
  asio::async_write(socket_, asio::buffer(*out_.front()),
                    [self = shared_from_this()](const ErrorCode& error, std::size_t) {
                      if (error || !self->open_) return self->close();
                      self->out_.pop_front();
                      if (!self->out_.empty()) return self->write();
                      if (self->finished_) self->finish();
                    });
}

void Link::finish() {
  finished_ = true;
  if (!open_ || !out_.empty()) return;
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Link::close() {
  if (!std::exchange(open_, false)) return;
  ErrorCode ignored;
  socket_.close(ignored);
  if (closed_) closed_();
}

}  // namespace lockstep
