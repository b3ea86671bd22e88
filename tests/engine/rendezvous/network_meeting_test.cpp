// Which processes may join a network rendezvous, which are refused and why, and what strangers can
// do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/rendezvous/connection.h"
#include "engine/rendezvous/tcp_store.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/rendezvous/raw_peer.h"
#include "tests/engine/rendezvous/stores.h"
#include "tests/support/tree.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

constexpr double kDeadline = 20;

TEST(TcpAddress, IsAHostAndAPortAndNothingElse) {
  for (const char* said : {"node7:29500", "10.0.0.1:1", "[fe80::1]:65535"}) {
    const auto address = tcp_address(said);
    ASSERT_TRUE(address) << said;
    EXPECT_EQ(text(*address), said);
  }
  EXPECT_EQ(tcp_address("[fe80::1]:9")->host, "fe80::1");
  for (const char* said : {"", "node7", ":29500", "node7:", "node7:0", "node7:65536", "node7:x",
                           "node7:-1", "/tmp/a:1", "a/b:22"}) {
    EXPECT_FALSE(tcp_address(said)) << said;
  }
}

std::string why(const std::function<void()>& body) {
  try {
    body();
  } catch (const JoinRefused& error) {
    return std::string("refused: ") + error.what();
  } catch (const CollectiveHang& error) {
    return std::string("hang: ") + error.what();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// Also against the scripts of tests/hostile.
TEST(Ports, BelongToOneProcessAtATime) {
  const std::uint16_t port = free_port();
  EXPECT_TRUE(reserves(port));  // As before.
  EXPECT_NE(free_port(), port);
  Processes other(1, [&](int) { return reserves(port) ? 2 : 0; });
  EXPECT_EQ(other.wait(0).status, 0);
  const auto script = [](std::uint16_t at) {
    const std::string text = "python3 -c 'import sys; sys.path.insert(0, \"" + root_path() +
                             "/tests/hostile\"); import itertools, ranks; ranks.PORTS = "
                             "itertools.count(" +
                             std::to_string(at - 20000) +
                             "); sys.exit(ranks.free_port() == " + std::to_string(at) + ")'";
    return std::system(text.c_str());
  };
  EXPECT_EQ(script(port), 0);
}

TEST(TcpStore, SaysWhyItTakesAProcessNot) {
  const TcpAddress at{"localhost", free_port()};
  const TcpStore first(at, {"job 7"}, 0, 3, kDeadline), second(at, {"job 7"}, 1, 3, kDeadline);
  // What the process is told, which is nothing of the run, and what rank 0's terminal shows.
  const auto join = [&](const std::string& run, int rank, int ranks) {
    testing::internal::CaptureStderr();
    const std::string told = why([&] { const TcpStore one(at, {run}, rank, ranks, kDeadline); });
    EXPECT_THAT(told, testing::Not(HasSubstr("job 7")));
    return told + "\n" + testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(join("job 8", 2, 3), HasSubstr("rank 2 is of run 'job 8', and this is 'job 7'"));
  EXPECT_THAT(join("job 7", 2, 4), HasSubstr("rank 2 is one of 4 ranks, and here are 3"));
  EXPECT_THAT(join("job 7", 1, 3), HasSubstr("rank 1 is there already"));
  EXPECT_THAT(join("job 7", 0, 3),
              HasSubstr("rank 0 cannot listen at port " + std::to_string(at.port)));
  EXPECT_THAT(join("job 7", 1, 3), testing::StartsWith("refused: rank 1 is refused at localhost:"));
  EXPECT_EQ(join("job 7", 2, 3), "\n");  // After all of these.
}

TEST(TcpStore, NamesTheRankThatNeverComes) {
  const TcpAddress at{"127.0.0.1", free_port()};
  EXPECT_THAT(why([&] { const TcpStore alone(at, {}, 1, 2, 0.3); }),
              testing::StartsWith("hang: rank 1 found no rank 0 at " + text(at) +
                                  " within 0.3 s: Connection refused"));
  EXPECT_THAT(
      why([&] {
        const TcpStore lost({"no-such-host.invalid", 1}, {}, 1, 2, 0.3);
      }),
      testing::StartsWith("hang: rank 1 found no rank 0 at no-such-host.invalid:1 within 0.3 s: "));
  TcpStore first(at, {}, 0, 3, 0.5), second(at, {}, 1, 3, 0.5);
  for (TcpStore* one : {&first, &second}) {
    EXPECT_THAT(why([&] { one->all_gather_object({.sequence = 0}, "words"); }),
                testing::MatchesRegex(
                    "hang: rank [0-2] did not come within 0.5 s: rank 0 .*; rank 2 never came"));
  }
}

// A rank may be one round ahead of another, and may post before the other has come.
TEST(TcpStore, KeepsWhatIsSaidBeforeARankComes) {
  const TcpAddress at{"127.0.0.1", free_port()};
  TcpStore first(at, {}, 0, 2, kDeadline);
  const CollectiveCall call{.sequence = 0};
  const auto say = [&](TcpStore& one, char word) {
    *one.begin() = static_cast<std::byte>(word);
    one.post(call, 1);
  };
  const auto hear = [&](TcpStore& one, int peer) {
    one.await_posts();
    const char word = static_cast<char>(*one.outbox_of(peer));
    one.end();
    return word;
  };
  say(first, 'a');
  TcpStore second(at, {}, 1, 2, kDeadline);
  say(second, 'b');
  EXPECT_EQ(hear(first, 1), 'b');
  say(first, 'c');  // The other has not taken 'a' yet.
  EXPECT_EQ(hear(second, 0), 'a');
  say(second, 'd');
  EXPECT_EQ(hear(second, 0), 'c');
  EXPECT_EQ(hear(first, 1), 'd');
}

// More than the system takes at once, from two threads: the frames are whole, sealed in the order
// in which they go, and in the order of each thread.
TEST(Connection, SendsForTwoThreadsWhatTheSystemTakesInParts) {
  constexpr std::uint32_t kCount = 40;
  boost::asio::io_context context;
  using Tcp = boost::asio::ip::tcp;
  Tcp::acceptor door(context, Tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  Tcp::socket near(context), far(context);
  near.connect(door.local_endpoint());
  door.accept(far);
  near.set_option(Tcp::socket::send_buffer_size(4096));
  const auto from = std::make_shared<Connection>(std::move(near), 2 * kCount),
             to = std::make_shared<Connection>(std::move(far), 2 * kCount);
  const Digest key = random_digest();
  from->seal(Seal(key));
  to->reader().trust("a rank");
  to->reader().require_seals(Seal(key));
  std::string why = "it ended early";
  std::vector<std::vector<std::uint32_t>> numbers(2);
  to->start(
      [&](const Message& message) {
        if (message.body != Bytes(message.number * 2000, std::byte{7})) why = "a body is another";
        numbers[message.from].push_back(message.number);
        if (numbers[0].size() + numbers[1].size() == 2 * kCount) context.stop();
      },
      [&](const std::string& bad) { why = bad; });
  const auto send = [&](int thread, std::uint32_t number) {
    from->send(shared({.kind = Message::Kind::post,
                       .from = thread,
                       .number = number,
                       .body = Bytes(number * 2000, std::byte{7})}));
  };
  boost::asio::steady_timer patience(context, std::chrono::seconds(20));
  patience.async_wait([&](const auto&) { context.stop(); });
  std::function<void(std::uint32_t)> send_from = [&](std::uint32_t number) {
    send(1, number);
    if (number + 1 < kCount) boost::asio::post(context, [&, number] { send_from(number + 1); });
  };
  boost::asio::post(context, [&] { send_from(0); });
  std::thread others([&] { context.run(); });
  for (std::uint32_t number = 0; number < kCount; ++number) send(0, number);
  others.join();
  std::vector<std::uint32_t> all(kCount);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(numbers[0], all) << why;
  EXPECT_EQ(numbers[1], all) << why;
}

RC_GTEST_PROP(TcpStore, IsNotDisturbedByStrangers, ()) {
  const TcpAddress at{"127.0.0.1", free_port()};
  TcpStore first(at, {}, 0, 2, kDeadline);
  const RawPeer silent = RawPeer::connected(at.port), loud = RawPeer::connected(at.port),
                late = RawPeer::connected(at.port);
  loud.say(as_bytes(*rc::gen::string<std::string>()));
  TcpStore second(at, {}, 1, 2, kDeadline);
  late.say(as_bytes(*rc::gen::container<std::string>(300, rc::gen::arbitrary<char>())));
  const CollectiveCall call{.sequence = 0};
  for (TcpStore* one : {&first, &second}) {
    one->begin();
    one->post(call);
  }
  for (TcpStore* one : {&first, &second}) {
    one->await_posts();
    one->end();
  }
  RC_ASSERT(first.report(call) == second.report(call));
}

// Who has come speaks for itself alone, and who has not come is not heard.
TEST(TcpStore, HearsEachRankForItselfAlone) {
  const TcpAddress at{"127.0.0.1", free_port()};
  TcpStore first(at, {"job"}, 0, 3, 0.5);
  const CollectiveCall call{.sequence = 0};
  const Message post{.kind = Message::Kind::post, .from = 1, .number = 1, .call = call};
  RawPeer without_hello = RawPeer::connected(at.port), second = RawPeer::connected(at.port);
  without_hello.say(post);
  EXPECT_TRUE(second.join(2, 3, {"job"}));
  second.say(post);
  second.say({.kind = Message::Kind::post, .from = 2, .number = 1, .call = call});
  first.begin();
  first.post(call);
  EXPECT_THAT(
      why([&] { first.await_posts(); }),
      testing::AllOf(HasSubstr("rank 1 did not come within 0.5 s: "),
                     HasSubstr("rank 1 never came"), HasSubstr("rank 2 waits in collective 0")));
}

// A rank that computes waits for nobody, and serves its connections all the same: the others hear
// that it lives, and each other.
TEST(TcpStore, IsServedWhileItsRankDoesOtherWork) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const TcpStore first(at, {}, 0, 3, 1);
  TcpStore second(at, {}, 1, 3, 1), third(at, {}, 2, 3, kDeadline);
  const CollectiveCall call{.sequence = 0};
  for (TcpStore* one : {&second, &third}) {
    one->begin();
    one->post(call);
  }
  EXPECT_THAT(why([&] { second.await_posts(); }),
              testing::StartsWith("hang: rank 0 did not come within 1 s: rank 0 was last in no "
                                  "collective; rank 1 waits in collective 0, meet; rank 2 waits in "
                                  "collective 0, meet"));
}

// Rank 0 of three as far as rank 1 can see: it welcomes it, and posts; what rank 2 posts it never
// passes on. With a beat now and then if it `lives`, or nothing more.
class DeafHub {
 public:
  DeafHub(const TcpAddress& at, const CollectiveCall& call, bool lives)
      : listener_(at.port), thread_([this, call, lives] { serve(call, lives); }) {}
  DeafHub(const DeafHub&) = delete;
  ~DeafHub() {
    ended_ = true;
    listener_.stop();  // Nobody may have come.
    thread_.join();
  }

 private:
  void serve(const CollectiveCall& call, bool lives) const {
    RawPeer peer = listener_.accept();
    peer.welcome({});
    peer.say({.kind = Message::Kind::here, .from = 2});
    peer.say({.kind = Message::Kind::post, .number = 1, .call = call});
    for (; !ended_; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      if (lives) peer.say({.kind = Message::Kind::beat});
    }
  }

  RawListener listener_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// Behind a rank 0 that was stopped nobody is heard: that another has not come, it only seems.
TEST(TcpStore, BlamesRankZeroWhenItHasStoppedAndNoneBehindIt) {
  const CollectiveCall call{.sequence = 0};
  for (const bool lives : {false, true}) {
    const TcpAddress at{"127.0.0.1", free_port()};
    const DeafHub hub(at, call, lives);
    TcpStore second(at, {}, 1, 3, 1);
    second.begin();
    second.post(call);
    const std::string said = why([&] { second.await_posts(); });
    EXPECT_THAT(said,
                testing::StartsWith(
                    lives ? "hang: rank 2 did not come within 1 s: rank 0 waits in collective 0"
                          : "hang: rank 0 did not come within 1 s: rank 0 was silent after "
                            "collective 0"));
    EXPECT_THAT(said, HasSubstr("; rank 1 waits in collective 0"));
  }
}

}  // namespace
}  // namespace lockstep::test
