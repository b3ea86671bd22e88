#include "engine/rendezvous/endpoint.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace lockstep {

void Membership::take_in(Message message) {
  const std::lock_guard lock(mutex);
  Peer& from = peer(message.from);
  if (message.kind == Message::Kind::post) {
    from.posted = message.number;
    from.last = message.call;
    from.rounds.push_back(std::move(message));
  } else if (from.state < Store::ended) {
    const bool ended = message.kind == Message::Kind::ended,
               failed = message.kind == Message::Kind::failed;
    from.state = ended ? Store::ended : failed ? Store::failed : Store::here;
    if ((ended || failed) && first_gone < 0) first_gone = message.from;
  }
  news.notify_all();
}

void Membership::count_connection(int change) {
  const std::lock_guard lock(mutex);
  connections += change;
  news.notify_all();
}

Endpoint::Endpoint(Membership& membership, const TcpAddress& address, const std::string& run,
                   Store::Clock::duration beat)
    : peers_(membership.rank == 0 ? make_store_server(context_, membership, address.port, run, beat)
                                  : make_store_client(context_, membership, address, run)),
      thread_([this] { context_.run(); }) {}

Endpoint::~Endpoint() {
  context_.stop();
  thread_.join();
}

void Endpoint::say(const Message& message) {
  boost::asio::post(context_,
                    [this, encoded_message = encoded(message)] { peers_->send(encoded_message); });
}

void Endpoint::leave(const Message& word) {
  boost::asio::post(context_, [this, encoded_message = encoded(word)] {
    peers_->send(encoded_message);
    peers_->finish();
  });
}

}  // namespace lockstep
