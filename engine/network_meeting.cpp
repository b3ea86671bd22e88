#include "engine/network_meeting.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "engine/network_link.h"
#include "kernels/require.h"

namespace lockstep {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

std::string text(const NetworkAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::optional<NetworkAddress> network_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.find('/') != std::string::npos) return {};
  NetworkAddress address{.host = text.substr(0, colon)};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end || address.port == 0) return {};
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

// What the meeting knows of the others, and the thread that brings it. The thread alone touches connections; what lies
// under the mutex both sides touch.
struct NetworkMeeting::Network {
  struct Peer {
    State state = absent;
    std::uint32_t posted = 0;
    CollectiveCall last = {};
    std::deque<Frame> rounds = {};  // Those that this rank has not taken.
  };
  enum class Welcome { awaited, given, refused };

  Network(const NetworkAddress& to, const std::string& of_run, int this_rank, int ranks)
      : address(to),
        run(of_run),
        rank(this_rank),
        peers(static_cast<std::size_t>(ranks)),
        links(static_cast<std::size_t>(ranks)),
        kept(static_cast<std::size_t>(ranks)) {
    peer(rank).state = here;
    hub() ? listen() : connect();
    thread = std::thread([this] { context.run(); });
  }
  ~Network() {
    context.stop();
    thread.join();
  }

  bool hub() const { return rank == 0; }
  int size() const { return static_cast<int>(peers.size()); }
  Peer& peer(int r) { return peers[static_cast<std::size_t>(r)]; }

  // ---- Of every rank
  // -------------------------------------------------------------------------------------------------

  // A frame has come, from its rank or by way of rank 0.
  void take_in(Frame frame) {
    const std::lock_guard lock(mutex);
    Peer& from = peer(frame.from);
    if (frame.kind == Frame::Kind::post) {
      from.posted = frame.number;
      from.last = frame.call;
      from.rounds.push_back(std::move(frame));
    } else if (from.state < ended) {
      from.state = frame.kind == Frame::Kind::ended ? ended : frame.kind == Frame::Kind::failed ? failed : here;
      if (from.state >= ended && first_gone < 0) first_gone = frame.from;
    }
    news.notify_all();
  }

  // To all others.
  void say(const Packet& packet) {
    if (!hub()) return link(0)->send(packet);
    pass_on(packet, 0);
  }

  // A last word, and no more.
  void leave(const Frame& word) {
    if (hub() || link(0) != nullptr) say(packed(word));
    ErrorCode ignored;
    if (acceptor) acceptor->close(ignored);
    for (const auto& one : links) {
      if (one != nullptr) one->finish();
    }
  }

  std::shared_ptr<Link>& link(int r) { return links[static_cast<std::size_t>(r)]; }
  void opened() {
    const std::lock_guard lock(mutex);
    ++open;
  }
  void closed() {
    const std::lock_guard lock(mutex);
    --open;
    news.notify_all();
  }

  // ---- Rank 0
  // --------------------------------------------------------------------------------------------------------

  void listen() {
    const auto bind = [&](const Tcp& protocol) {
      acceptor.emplace(context, protocol);
      if (protocol == Tcp::v6()) acceptor->set_option(asio::ip::v6_only(false));
      acceptor->set_option(Tcp::acceptor::reuse_address(true));
      acceptor->bind({protocol, address.port});
      acceptor->listen();
    };
    try {
      try {
        bind(Tcp::v6());
      } catch (const boost::system::system_error& error) {
        if (error.code() == asio::error::address_in_use) throw;
        bind(Tcp::v4());
      }
    } catch (const boost::system::system_error& error) {
      throw std::runtime_error("rank 0 cannot listen at port " + std::to_string(address.port) + ": " +
                               error.code().message());
    }
    accept();
  }
  void accept() {
    acceptor->async_accept([this](const ErrorCode& error, Link::Socket socket) {
      if (!acceptor->is_open()) return;
      if (!error) greet(std::make_shared<Link>(std::move(socket)));
      accept();
    });
  }

  // The first frame says who comes; the others are of that rank.
  void greet(const std::shared_ptr<Link>& one) {
    const auto who = std::make_shared<int>(-1);
    one->start(
        [this, who, from = std::weak_ptr(one)](Frame frame) {
          if (*who < 0) {
            *who = welcome(frame, from.lock());
          } else if (frame.from == *who && frame.kind >= Frame::Kind::post) {
            pass_on(packed(frame), frame.from);
            take_in(std::move(frame));
          }
        },
        [this, who] {
          if (*who > 0) lose(*who);
        });
  }
  // The rank that comes, or -1 for one that is refused.
  int welcome(const Frame& hello, const std::shared_ptr<Link>& one) {
    const std::string why = refusal(hello);
    if (!why.empty()) {
      Frame refused{.kind = Frame::Kind::refused};
      for (const char c : why) refused.body.push_back(static_cast<std::byte>(c));
      one->send(packed(refused));
      one->finish();
      return -1;
    }
    one->send(packed({.kind = Frame::Kind::welcome}));
    for (const Packet& packet : std::exchange(kept[static_cast<std::size_t>(hello.from)], {})) one->send(packet);
    link(hello.from) = one;
    opened();
    const Frame there{.kind = Frame::Kind::here, .from = hello.from};
    pass_on(packed(there), hello.from);
    take_in(there);
    return hello.from;
  }
  std::string refusal(const Frame& hello) {
    std::string theirs;
    for (const std::byte byte : hello.body) theirs += static_cast<char>(byte);
    const std::string who = "rank " + std::to_string(hello.from);
    if (hello.kind != Frame::Kind::hello) return "it does not say who it is";
    if (theirs != run) return who + " is of run '" + theirs + "', and this is '" + run + "'";
    if (hello.number != peers.size()) {
      return who + " is one of " + std::to_string(hello.number) + " ranks, and here are " + std::to_string(size());
    }
    if (hello.from <= 0 || hello.from >= size()) return who + " is none of the " + std::to_string(size()) + " ranks";
    return link(hello.from) == nullptr ? "" : who + " is there already";
  }
  // To all but the one that it is from. Who has not come yet gets it then.
  void pass_on(const Packet& packet, int from) {
    for (int r = 1; r < size(); ++r) {
      if (r == from) continue;
      link(r) == nullptr ? kept[static_cast<std::size_t>(r)].push_back(packet) : link(r)->send(packet);
    }
  }
  void lose(int r) {
    bool expected = false;
    {
      const std::lock_guard lock(mutex);
      expected = peer(r).state >= ended;
    }
    const Frame gone{.kind = Frame::Kind::failed, .from = r};
    if (!expected) pass_on(packed(gone), r);
    take_in(gone);
    link(r)->finish();
    closed();
  }

  // ---- The others
  // ----------------------------------------------------------------------------------------------------

  void connect() {
    resolver.async_resolve(address.host, std::to_string(address.port),
                           [this](const ErrorCode& error, const Tcp::resolver::results_type& found) {
                             if (error) return try_again(error);
                             const auto socket = std::make_shared<Link::Socket>(context);
                             asio::async_connect(*socket, found,
                                                 [this, socket](const ErrorCode& failed_with, const Tcp::endpoint&) {
                                                   if (failed_with) return try_again(failed_with);
                                                   join(std::move(*socket));
                                                 });
                           });
  }
  // Rank 0 may not be there yet.
  void try_again(const ErrorCode& error) {
    {
      const std::lock_guard lock(mutex);
      reason = error.message();
    }
    again.expires_after(std::chrono::milliseconds(50));
    again.async_wait([this](const ErrorCode& stopped) {
      if (!stopped) connect();
    });
  }
  void join(Link::Socket socket) {
    // Where nobody listens at a port that the system may give to who connects, a socket can meet itself.
    ErrorCode error;
    if (socket.local_endpoint(error) == socket.remote_endpoint(error)) {
      return try_again(asio::error::make_error_code(asio::error::connection_refused));
    }
    link(0) = std::make_shared<Link>(std::move(socket));
    link(0)->start([this](Frame frame) { hear(std::move(frame)); }, [this] { lose_the_hub(); });
    Frame hello{.kind = Frame::Kind::hello, .from = rank, .number = static_cast<std::uint32_t>(size())};
    for (const char c : run) hello.body.push_back(static_cast<std::byte>(c));
    link(0)->send(packed(hello));
    opened();
  }
  void hear(Frame frame) {
    const bool answer = frame.kind == Frame::Kind::welcome || frame.kind == Frame::Kind::refused;
    if (answer) {
      const std::lock_guard lock(mutex);
      welcomed = frame.kind == Frame::Kind::welcome ? Welcome::given : Welcome::refused;
      reason.clear();
      for (const std::byte byte : frame.body) reason += static_cast<char>(byte);
    }
    const bool known = frame.from >= 0 && frame.from < size() && frame.from != rank;
    if (known && frame.kind != Frame::Kind::refused) take_in(std::move(frame));
    if (answer) news.notify_all();
  }
  void lose_the_hub() {
    Welcome answer{};
    {
      const std::lock_guard lock(mutex);
      answer = welcomed;
      lost = answer == Welcome::given;
    }
    closed();
    if (answer == Welcome::given) take_in({.kind = Frame::Kind::failed, .from = 0});
    if (answer == Welcome::awaited) try_again(asio::error::make_error_code(asio::error::connection_reset));
  }

  const NetworkAddress address;
  const std::string run;
  const int rank;

  std::mutex mutex;
  std::condition_variable news;
  std::vector<Peer> peers;
  Welcome welcomed = Welcome::awaited;
  std::string reason;  // Why this rank is refused, or has found no one yet.
  bool lost = false;   // Rank 0 has gone, and nobody else is heard any more.
  int first_gone = -1;
  int open = 0;  // Connections.

  asio::io_context context;
  std::optional<Tcp::acceptor> acceptor;
  Tcp::resolver resolver{context};
  asio::steady_timer again{context};
  std::vector<std::shared_ptr<Link>> links;  // Rank 0: to each that has come. The others: the first, to rank 0.
  std::vector<std::deque<Packet>> kept;      // Rank 0: for those who have not come yet.
  std::thread thread;
};

// ---- To be there ----------------------------------------------------------------------------------------------------

NetworkMeeting::NetworkMeeting(const NetworkAddress& address, const std::string& run, int rank, int ranks,
                               double deadline_s)
    : Meeting(rank, ranks, deadline_s),
      outbox_(kOutbox),
      network_(std::make_unique<Network>(address, run, rank, ranks)) {
  if (rank > 0) await_welcome(address);
}

void NetworkMeeting::await_welcome(const NetworkAddress& address) {
  std::unique_lock lock(network_->mutex);
  const bool answered =
      network_->news.wait_for(lock, deadline(), [&] { return network_->welcomed != Network::Welcome::awaited; });
  const std::string who = "rank " + std::to_string(rank());
  if (!answered) {
    throw CollectiveHang(who + " found no rank 0 at " + text(address) + " " + within() + ": " + network_->reason);
  }
  if (network_->welcomed == Network::Welcome::refused) {
    throw MeetingRefused(who + " is refused at " + text(address) + ": " + network_->reason);
  }
}

NetworkMeeting::~NetworkMeeting() {
  const Frame word{.kind = std::uncaught_exceptions() > 0 ? Frame::Kind::failed : Frame::Kind::ended, .from = rank()};
  asio::post(network_->context, [network = network_.get(), word] { network->leave(word); });
  std::unique_lock lock(network_->mutex);
  network_->news.wait_for(lock, std::chrono::seconds(1), [&] { return network_->open == 0; });
}

// ---- A round --------------------------------------------------------------------------------------------------------

void NetworkMeeting::put(const CollectiveCall& call, std::size_t filled) {
  Frame frame{.kind = Frame::Kind::post, .from = rank(), .number = rounds(), .call = call};
  frame.body.assign(outbox_.begin(), outbox_.begin() + static_cast<std::ptrdiff_t>(filled));
  asio::post(network_->context, [network = network_.get(), packet = packed(frame)] { network->say(packet); });
  network_->take_in(std::move(frame));
}

void NetworkMeeting::take() {
  const std::lock_guard lock(network_->mutex);
  for (Network::Peer& peer : network_->peers) peer.rounds.pop_front();
}

// A frame that has come is this rank's own: nobody waits until it is taken.
Meeting::Progress NetworkMeeting::progress_of(int peer, Mark mark) const {
  if (mark == Mark::taken) return {.rounds = rounds()};
  const std::lock_guard lock(network_->mutex);
  const Network::Peer& of = network_->peer(peer);
  const bool gone = of.state >= ended || network_->lost;  // Because of the first.
  return {.gone = gone ? network_->first_gone : -1, .rounds = of.posted};
}

void NetworkMeeting::wait_for_change(int peer, Mark, std::uint32_t seen) {
  std::unique_lock lock(network_->mutex);
  network_->news.wait_for(lock, std::chrono::milliseconds(50), [&] {
    const Network::Peer& of = network_->peer(peer);
    return of.posted != seen || of.state >= ended || network_->lost;
  });
}

CollectiveCall NetworkMeeting::call_of(int peer) const {
  const std::lock_guard lock(network_->mutex);
  return network_->peer(peer).rounds.front().call;
}

const std::byte* NetworkMeeting::outbox_of(int peer) const {
  const std::lock_guard lock(network_->mutex);
  return network_->peer(peer).rounds.front().body.data();
}

Meeting::Last NetworkMeeting::last_of(int peer) const {
  const std::lock_guard lock(network_->mutex);
  const Network::Peer& of = network_->peer(peer);
  return {.state = of.state, .posted = of.posted, .call = of.last};
}

}  // namespace lockstep
