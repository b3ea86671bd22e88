// Who has the key joins and nobody else, on either side; and a frame that was changed, repeated or
// left out on its way ends the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "engine/rendezvous/tcp_store.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/rendezvous/raw_peer.h"
#include "tests/engine/rendezvous/stores.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using Kind = Message::Kind;

constexpr double kDeadline = 10;
const RunIdentity kRun{.name = "secret-name", .key = "the key of this run"};
const RunIdentity kOtherKey{.name = "secret-name", .key = "another key"};
const RunIdentity kNoKey{.name = "secret-name"};

// What `body` throws and what is printed meanwhile.
struct Told {
  std::string error, terminal;
};
Told told(const std::function<void()>& body) {
  Told all;
  testing::internal::CaptureStderr();
  try {
    body();
  } catch (const std::runtime_error& error) {
    all.error = error.what();
  }
  all.terminal = testing::internal::GetCapturedStderr();
  return all;
}

// As RFC 4231 has it, test case 2.
TEST(Hmac, IsThatOfTheStandard) {
  const Digest digest =
      hmac(bytes_of("Jefe"), {bytes_of("what do ya want "), bytes_of("for nothing?")});
  std::string hex;
  for (const std::byte byte : digest) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned>(byte));
    hex += text;
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Handshake, TakesThoseWhoHaveTheKey) {
  const TcpAddress at{"127.0.0.1", free_port()};
  TcpStore rank_0(at, kRun, 0, 2, kDeadline), rank_1(at, kRun, 1, 2, kDeadline);
  std::vector<std::string> heard;
  std::thread other([&] { heard = rank_1.all_gather_object({.sequence = 0}, "b"); });
  EXPECT_EQ(rank_0.all_gather_object({.sequence = 0}, "a"), (std::vector<std::string>{"a", "b"}));
  other.join();
  EXPECT_EQ(heard, (std::vector<std::string>{"a", "b"}));
}

// Both sides are told at once, and the run goes on.
TEST(Handshake, TakesNobodyWithAnotherKeyOrNone) {
  for (const RunIdentity& ours : {kRun, kNoKey}) {
    const TcpAddress at{"127.0.0.1", free_port()};
    const TcpStore rank_0(at, ours, 0, 2, kDeadline);
    for (const RunIdentity& theirs : {kOtherKey, ours.key.empty() ? kRun : kNoKey}) {
      const Told all = told([&] {
        EXPECT_THROW(TcpStore(at, theirs, 1, 2, kDeadline), JoinRefused);
        const TcpStore rank_1(at, theirs, 1, 2, kDeadline);
      });
      EXPECT_THAT(all.error, HasSubstr("what listens there does not have the same key"));
      EXPECT_THAT(all.terminal, HasSubstr("before it had joined: it may have another key"));
    }
    EXPECT_NO_THROW(TcpStore(at, ours, 1, 2, kDeadline));
  }
}

// Who has the key is told why it is refused; who may be a stranger is not.
TEST(Handshake, TellsAReasonToThoseAloneWhoHaveTheKey) {
  for (const RunIdentity& run : {kRun, kNoKey}) {
    const TcpAddress at{"127.0.0.1", free_port()};
    const TcpStore rank_0(at, run, 0, 2, kDeadline);
    const Told all =
        told([&] { const TcpStore late(at, {.name = "older", .key = run.key}, 1, 2, kDeadline); });
    const auto reason = HasSubstr("rank 1 is of run 'older', and this is 'secret-name'");
    EXPECT_THAT(all.terminal, reason);
    if (run.key.empty()) {
      EXPECT_THAT(all.error, HasSubstr("rank 0 has said why on its own terminal"));
    } else {
      EXPECT_THAT(all.error, reason);
    }
  }
}

// A rank tells whoever listens neither its run's name nor anything that depends on the key.
TEST(Handshake, OfARankProvesNothingToAStranger) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const RawListener listener(at.port);
  Told rank_1;
  std::thread rank(
      [&] { rank_1 = told([&] { const TcpStore store(at, kRun, 1, 2, kDeadline); }); });
  const RawPeer peer = listener.accept();
  const auto hello = peer.hear();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->head.kind, Kind::hello);
  EXPECT_EQ(hello->body.size(), sizeof(Digest));
  peer.say(frame_of({.kind = Kind::challenge, .body = zeros(2 * sizeof(Digest))}));
  EXPECT_FALSE(peer.hear());
  rank.join();
  EXPECT_THAT(rank_1.error, HasSubstr("does not have the same key"));
}

// Rank 0's proof is none of a rank, and a rank's proof is none on another connection.
TEST(Handshake, HoldsAgainstWhatWasHeardBefore) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const TcpStore rank_0(at, kRun, 0, 3, kDeadline);
  const Message hello{.kind = Kind::hello, .from = 1, .number = 3, .body = zeros(sizeof(Digest))};
  Bytes proof_of_another(sizeof(Digest));
  for (int i = 0; i < 2; ++i) {
    RawPeer peer = RawPeer::connected(at.port);
    peer.say(hello);
    const auto challenge = peer.hear(Kind::challenge);
    ASSERT_TRUE(challenge);
    const auto [random, theirs] = halves(challenge->body);
    Bytes proof = i == 0 ? Bytes(theirs.begin(), theirs.end()) : proof_of_another;
    if (i == 1) {
      const Bytes name = as_bytes(kRun.name);
      proof.insert(proof.end(), name.begin(), name.end());
    }
    peer.say({.kind = Kind::proof, .from = 1, .body = proof});
    EXPECT_FALSE(peer.hear());  // It is closed without a word.
    const Digest other = random_digest();
    const Digest right =
        Handshake(kRun.key, 1, 3, hello.body, other).proof_of_rank(as_bytes(kRun.name));
    proof_of_another.assign(right.begin(), right.end());
  }
  EXPECT_NO_THROW(TcpStore(at, kRun, 1, 3, kDeadline));
}

// How rank 0 ends when rank 1, which has joined, sends these bytes instead of its first post.
Ended ended_after(const std::function<Bytes(RawPeer&, const Message& post)>& bytes) {
  const TcpAddress at{"127.0.0.1", free_port()};
  Processes rank_0(1, [&](int) {
    TcpStore store(at, kRun, 0, 2, kDeadline);
    store.begin();
    store.post({.sequence = 0});
    store.await_posts();
    store.end();
    store.begin();
    store.post({.sequence = 1});
    store.await_posts();
    return 0;
  });
  RawPeer peer = RawPeer::connected(at.port);
  EXPECT_TRUE(peer.join(1, 2, kRun));
  const auto asked = peer.hear(Kind::post);
  EXPECT_TRUE(asked);
  peer.say(bytes(peer, {.kind = Kind::post,
                        .from = 1,
                        .number = 1,
                        .call = asked ? asked->head.call : CollectiveCall{},
                        .body = zeros(100)}));
  return rank_0.wait(0);
}

TEST(Seals, AreWrongWhenOneBitIs) {
  for (const std::size_t bit :
       {std::size_t{12}, sizeof(FrameHead) - 1, sizeof(FrameHead) + 50, sizeof(FrameHead) + 99}) {
    const Ended ended = ended_after([&](RawPeer& peer, const Message& post) {
      Bytes frame = peer.frame(post);
      frame[bit] ^= std::byte{1};
      return frame;
    });
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(ended.words, testing::AnyOf(HasSubstr("rank 1 sent a frame whose seal is wrong"),
                                            HasSubstr("rank 1 posted no call")))
        << bit;
  }
}

TEST(Seals, AreWrongWhenAFrameIsRepeatedOrLeftOut) {
  const Ended again = ended_after([](RawPeer& peer, const Message& post) {
    Bytes frame = peer.frame(post);
    const Bytes once = frame;
    frame.insert(frame.end(), once.begin(), once.end());
    return frame;
  });
  EXPECT_THAT(again.words, HasSubstr("rank 1 sent a frame whose seal is wrong"));
  const Ended without = ended_after([](RawPeer& peer, const Message& post) {
    static_cast<void>(peer.frame({.kind = Kind::here, .from = 1}));
    return peer.frame(post);
  });
  EXPECT_THAT(without.words, HasSubstr("rank 1 sent a frame whose seal is wrong"));
}

// The same bytes in the other direction are no frame of rank 0.
TEST(Seals, BelongToOneDirection) {
  const Bytes nothing = zeros(sizeof(Digest));
  const Handshake handshake(kRun.key, 1, 2, nothing, nothing);
  const Message message{.kind = Kind::beat};
  Seal up = handshake.seal_of_rank(), down = handshake.seal_of_rank_0();
  EXPECT_NE(head_of(message, &up).seal, head_of(message, &down).seal);
}

TEST(Rank0, WarnsOfANetworkWithoutAKey) {
  const auto terminal = [](const std::string& host, const RunIdentity& run) {
    return told([&] { const TcpStore store({host, free_port()}, run, 0, 2, kDeadline); }).terminal;
  };
  EXPECT_THAT(terminal("0.0.0.0", kNoKey), HasSubstr("there is no key (LOCKSTEP_MEETING_KEY): "
                                                     "whoever reaches 0.0.0.0:"));
  EXPECT_EQ(terminal("0.0.0.0", kRun), "");
  EXPECT_EQ(terminal("localhost", kNoKey), "");
  EXPECT_EQ(terminal("127.0.0.1", kNoKey), "");
}

// As Debian's /etc/hosts has the machine's own name. "127.1" is no address as one writes them, but
// the resolver knows it.
TEST(Rank0, WarnsOfANameThatNoOtherMachineReaches) {
  const Told all = told([&] {
    const TcpStore store({"127.1", free_port()}, kRun, 0, 2, kDeadline);
  });
  EXPECT_THAT(all.terminal,
              HasSubstr("127.1 is 127.0.0.1 on this machine, which no other reaches"));
}

}  // namespace
}  // namespace lockstep::test
