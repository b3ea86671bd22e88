#include "engine/rendezvous/network_side.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace lockstep {

void Roll::take_in(Frame frame) {
  const std::lock_guard lock(mutex);
  Peer& from = peer(frame.from);
  if (frame.kind == Frame::Kind::post) {
    from.posted = frame.number;
    from.last = frame.call;
    from.rounds.push_back(std::move(frame));
  } else if (from.state < Meeting::ended) {
    const bool ended = frame.kind == Frame::Kind::ended, failed = frame.kind == Frame::Kind::failed;
    from.state = ended ? Meeting::ended : failed ? Meeting::failed : Meeting::here;
    if ((ended || failed) && first_gone < 0) first_gone = frame.from;
  }
  news.notify_all();
}

void Roll::count_connection(int change) {
  const std::lock_guard lock(mutex);
  connections += change;
  news.notify_all();
}

NetworkSide::NetworkSide(Roll& roll, const NetworkAddress& address, const std::string& run,
                         Meeting::Clock::duration beat)
    : connections_(roll.rank == 0 ? make_hub(context_, roll, address.port, run, beat)
                                  : make_spoke(context_, roll, address, run)),
      thread_([this] { context_.run(); }) {}

NetworkSide::~NetworkSide() {
  context_.stop();
  thread_.join();
}

void NetworkSide::say(const Frame& frame) {
  boost::asio::post(context_, [this, packet = packed(frame)] { connections_->send(packet); });
}

void NetworkSide::leave(const Frame& word) {
  boost::asio::post(context_, [this, packet = packed(word)] {
    connections_->send(packet);
    connections_->finish();
  });
}

}  // namespace lockstep
