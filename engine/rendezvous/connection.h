// A connection between two processes of a TcpStore, which keeps messages in order. Any thread may
// send; all else runs on the thread that serves its io_context.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
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
  void seal(Seal seal);
  // The calling thread sends as much as the system takes at once.
  void send(SharedMessage message);
  bool is_busy() const;  // Messages wait to be sent.
  void finish();  // Closes the sending side after all that was sent; messages of the other side are
                  // still read.
  void close(const std::string& why = "");

 private:
  struct Outgoing {
    FrameHead head;
    SharedMessage message;
    std::size_t sent = 0;  // The bytes of head and body that the system has taken.
    std::array<boost::asio::const_buffer, 2> left() const;
  };
  void read();
  bool send_now(Outgoing& first);
  void write();
  void wrote(const boost::system::error_code& error);
  void shut_down();

  Socket socket_;
  const std::size_t most_waiting_;
  std::function<void(Message)> came_;
  std::function<void(const std::string&)> closed_;
  FrameReader reader_;
  // The mutex protects what follows, and the socket from being closed while a thread sends.
  mutable std::mutex mutex_;
  std::optional<Seal> seal_;
  std::deque<Outgoing> out_;  // The first is being written by the io_context.
  bool finished_ = false, open_ = true;
};

}  // namespace lockstep
