// A connection between two processes of a TcpStore, which keeps messages in order. All of it runs
// on the thread of its io_context.
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

struct Message {
  // hello: a client asks to join; welcome and refused (with the reason as the body) are the
  // answers. beat: rank 0 is alive. here, ended, failed: a rank has joined or left. post: a rank
  // has posted a round; the body is its outbox.
  enum class Kind : std::uint32_t { hello, welcome, refused, beat, here, post, ended, failed };
  Kind kind = Kind::hello;
  std::int32_t from = 0;
  std::uint32_t number = 0;  // In a post the round; in a hello the number of ranks.
  CollectiveCall call = {};
  std::vector<std::byte> body = {};
};

// A message as bytes. Both sides use the layout of this build, which the magic number at the start
// of each message confirms.
using EncodedMessage = std::shared_ptr<const std::vector<std::byte>>;
EncodedMessage encoded(const Message& message);

std::vector<std::byte> as_bytes(const std::string& text);
std::string as_text(const std::vector<std::byte>& bytes);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  explicit Connection(Socket socket);

  // Reads until the other side ends or sends what is no message; `closed` is called once.
  void start(std::function<void(Message)> came, std::function<void()> closed);
  void send(EncodedMessage encoded_message);
  void finish();  // Closes the sending side after all that was sent; messages of the other side are
                  // still read.

 private:
  void read_head();
  void read_body();
  void write();
  void close();

  Socket socket_;
  std::function<void(Message)> came_;
  std::function<void()> closed_;
  std::vector<std::byte> head_;
  Message message_;
  std::deque<EncodedMessage> out_;  // The first is being written.
  bool finished_ = false, open_ = true;
};

}  // namespace lockstep
