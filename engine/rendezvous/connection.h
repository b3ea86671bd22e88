// A connection between two processes of a TcpStore, which keeps messages in order. All of it runs
// on the thread of its io_context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/rendezvous/frame.h"

namespace lockstep {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  // A peer that lets more than `most_waiting` messages wait does not read what it is sent.
  Connection(Socket socket, std::size_t most_waiting);

  // Reads until the other side ends, or until it sends what is no frame or what `came` throws a
  // BadFrame for. `closed` is called once; its text is the BadFrame's, or "" where the connection
  // has ended.
  void start(std::function<void(Message)> came, std::function<void(const std::string& why)> closed);
  FrameReader& reader() { return reader_; }
  // From now on messages are sent with seals.
  void seal(Seal seal) { seal_ = std::move(seal); }
  void send(SharedMessage message);
  bool is_busy() const { return !out_.empty(); }  // Messages wait to be sent.
  void finish();  // Closes the sending side after all that was sent; messages of the other side are
                  // still read.
  void close(const std::string& why = "");

 private:
  void read();
  void write();

  Socket socket_;
  const std::size_t most_waiting_;
  std::function<void(Message)> came_;
  std::function<void(const std::string&)> closed_;
  FrameReader reader_;
  struct Outgoing {
    FrameHead head;
    SharedMessage message;
  };
  std::optional<Seal> seal_;
  std::deque<Outgoing> out_;  // The first is being written.
  bool finished_ = false, open_ = true;
};

}  // namespace lockstep
