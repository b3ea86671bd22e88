// A connection between two processes of a meeting: frames come and go in their order. All of it runs on the thread of
// its io_context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

struct Frame {
  // A rank comes, is welcome or not (the body says why); rank 0 lives; a rank is there, has posted (the body is its
  // outbox), has left.
  enum class Kind : std::uint32_t { hello, welcome, refused, beat, here, post, ended, failed };
  Kind kind = Kind::hello;
  std::int32_t from = 0;
  std::uint32_t number = 0;  // Of a post: its round. Of a hello: how many ranks there are.
  CollectiveCall call = {};
  std::vector<std::byte> body = {};
};

// A frame as bytes. Both sides have the layout of this build: a magic number at the start of each frame says so.
using Packet = std::shared_ptr<const std::vector<std::byte>>;
Packet packed(const Frame& frame);

std::vector<std::byte> as_bytes(const std::string& text);
std::string as_text(const std::vector<std::byte>& bytes);

class Link : public std::enable_shared_from_this<Link> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  explicit Link(Socket socket);

  // Reads until the other side ends, or says what is no frame; `closed` is called once.
  void start(std::function<void(Frame)> came, std::function<void()> closed);
  void send(Packet packet);
  void finish();  // Behind all that was sent, nothing more comes. What the other side says is still read.

 private:
  void read_head();
  void read_body();
  void write();
  void close();

  Socket socket_;
  std::function<void(Frame)> came_;
  std::function<void()> closed_;
  std::vector<std::byte> head_;
  Frame frame_;
  std::deque<Packet> out_;  // The first is being written.
  bool finished_ = false, open_ = true;
};

}  // namespace lockstep
