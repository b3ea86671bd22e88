// Frames that are short, too long, out of order or nonsense end a rank with a sentence, and never
// with a signal, nor with bytes that lie behind them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/rendezvous/tcp_store.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/rendezvous/raw_peer.h"
#include "tests/engine/rendezvous/stores.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using Kind = Message::Kind;

constexpr double kDeadline = 5;
const RunIdentity kRun{.name = "job"};

// Words that have a length before them, as all_gather_object() posts them.
Bytes words(std::uint64_t length, const std::string& text) {
  Bytes bytes(sizeof length);
  std::memcpy(bytes.data(), &length, sizeof length);
  const Bytes behind = as_bytes(text);
  bytes.insert(bytes.end(), behind.begin(), behind.end());
  return bytes;
}

// What the stranger answers to rank 0's post: these differ from what an honest rank 1 posts.
struct Answer {
  Bytes body = words(0, "");
  std::uint32_t number = 1;
  int call_kind = 0;
  int times = 1;
};

Message post_of(const RawFrame& asked, const Answer& answer) {
  Message post{.kind = Kind::post,
               .from = 1,
               .number = answer.number,
               .call = asked.head.call,
               .body = answer.body};
  if (answer.call_kind != 0) post.call.kind = static_cast<CollectiveKind>(answer.call_kind);
  return post;
}

// Takes the bytes as a connection gives them; the messages, up to what is no frame.
std::vector<Message> read_from(FrameReader& reader, const Bytes& bytes) {
  std::vector<Message> messages;
  std::size_t first = 0;
  try {
    for (;;) {
      const std::span<std::byte> wanted = reader.wanted();
      RC_ASSERT(wanted.size() <= Store::kOutbox);
      if (wanted.size() > bytes.size() - first) return messages;
      std::memcpy(wanted.data(), bytes.data() + first, wanted.size());
      first += wanted.size();
      if (reader.came()) messages.push_back(reader.take());
    }
  } catch (const BadFrame&) {
    return messages;
  }
}

// Frames of which bytes were changed, whatever they were: a reader with seals gives those before
// the first change and none of the others, and one without gives what is bounded.
RC_GTEST_PROP(FrameReader, TakesFramesUpToTheFirstThatWasChanged, ()) {
  const Digest key = random_digest();
  Seal out(key);
  Bytes bytes;
  std::vector<std::size_t> ends;
  const auto sizes = *rc::gen::container<std::vector<std::size_t>>(
      *rc::gen::inRange(1, 5), rc::gen::inRange<std::size_t>(0, 200'000));
  const bool with_seals = *rc::gen::arbitrary<bool>();
  for (const std::size_t size : sizes) {
    const Bytes frame =
        frame_of({.kind = Kind::post, .from = 1, .number = 1, .body = Bytes(size, std::byte{7})},
                 with_seals ? &out : nullptr);
    bytes.insert(bytes.end(), frame.begin(), frame.end());
    ends.push_back(bytes.size());
  }
  const std::size_t changed = *rc::gen::inRange<std::size_t>(0, bytes.size());
  bytes[changed] ^= static_cast<std::byte>(*rc::gen::inRange(1, 256));
  FrameReader reader;
  reader.trust("rank 1");
  if (with_seals) reader.require_seals(Seal(key));
  const std::vector<Message> messages = read_from(reader, bytes);
  if (with_seals) {
    const auto whole = std::upper_bound(ends.begin(), ends.end(), changed) - ends.begin();
    RC_ASSERT(std::ssize(messages) == whole);
  }
  for (const Message& message : messages) {
    RC_ASSERT(message.body.size() <= Store::kOutbox);
    RC_ASSERT(is_well_formed(message.call));
  }
}

// How rank 0 ends when the peer that it believes to be rank 1 answers so.
Ended ended_after(const Answer& answer) {
  const TcpAddress at{"127.0.0.1", free_port()};
  Processes rank_0(1, [&](int) {
    TcpStore store(at, kRun, 0, 2, kDeadline);
    for (std::int64_t i = 0; i < 4; ++i) store.all_gather_object({.sequence = i}, "own words");
    return 0;
  });
  RawPeer peer = RawPeer::connected(at.port);
  EXPECT_TRUE(peer.prove(1, 2, kRun));
  const auto asked = peer.hear(Kind::post);
  EXPECT_TRUE(asked);
  Answer next = answer;
  for (int i = 0; asked && i < answer.times; ++i, ++next.number) peer.say(post_of(*asked, next));
  return rank_0.wait(0);
}

// 1 stands for every exception but a hang, of which `lockstep` makes status 3.
void expect_a_sentence(const Ended& ended, const std::string& sentence) {
  EXPECT_THAT(ended.status, testing::AnyOf(1, 4)) << ended.words;
  EXPECT_THAT(ended.words, HasSubstr(sentence));
}

TEST(HostileFrames, OfAPostThatIsTooShortAreNotReadPast) {
  expect_a_sentence(ended_after({.body = {}}), "rank 1 posted 0 bytes, and 8 are needed");
  expect_a_sentence(ended_after({.body = zeros(7)}), "rank 1 posted 7 bytes, and 8 are needed");
  expect_a_sentence(ended_after({.body = words(4000, "lockstep")}),
                    "rank 1 posted 16 bytes, and 4008 are needed");
  expect_a_sentence(ended_after({.body = words(2, "longer")}),
                    "rank 1 posted 14 bytes, and 10 are needed");
}

TEST(HostileFrames, ThatAnnounceMoreThanAnyRankSaysAreRefused) {
  expect_a_sentence(ended_after({.body = words(std::uint64_t{1} << 60, "lockstep")}),
                    "rank 1 announces 1152921504606846976 bytes");
}

TEST(HostileFrames, OfAnotherRoundThanTheNextAreRefused) {
  for (const std::uint32_t number : {0u, 2u, 1000u, 0xffffffffu}) {
    expect_a_sentence(ended_after({.number = number}),
                      "rank 1 posted round " + std::to_string(number) + ", and 1 is its next");
  }
}

// A rank may be one round ahead; the third post has nobody who could have answered the second.
TEST(HostileFrames, ThatRunAheadAreRefused) {
  const Ended ended = ended_after({.body = zeros(Store::kOutbox), .times = 3});
  EXPECT_EQ(ended.status, 1);
  // Which of the two is seen first is a matter of time: that it runs ahead, or what it posted.
  EXPECT_THAT(ended.words, testing::AnyOf(HasSubstr("rank 1 posted round 3 before round 2"),
                                          HasSubstr("posted 1048576 bytes, and 8 are needed")));
}

TEST(HostileFrames, OfNoCallAreRefused) {
  expect_a_sentence(ended_after({.call_kind = 77}), "rank 1 posted no call");
  expect_a_sentence(ended_after({.call_kind = 6}), "rank 1 posted no call");
}

// How rank 1 ends when a stranger listens where rank 0 should, welcomes it and says this.
Ended ended_under(const std::vector<Message>& said) {
  const TcpAddress at{"127.0.0.1", free_port()};
  const RawListener listener(at.port);
  Processes rank_1(1, [&](int) {
    TcpStore store(at, kRun, 1, 3, kDeadline);
    store.all_gather_object({.sequence = 0}, "own words");
    return 0;
  });
  RawPeer peer = listener.accept();
  EXPECT_TRUE(peer.welcome(kRun));
  for (const Message& one : said) peer.say(one);
  return rank_1.wait(0);
}

TEST(HostileFrames, OfARankZeroAreBoundedAsWell) {
  const Message here{.kind = Kind::here, .from = 2},
      post{.kind = Kind::post, .number = 1, .call = {.sequence = 0}},
      second{.kind = Kind::post, .from = 2, .number = 1, .call = {.sequence = 0}};
  const auto numbered = [](Message message, std::uint32_t number) {
    message.number = number;
    return message;
  };
  expect_a_sentence(ended_under({here, post, second}), "rank 0 posted 0 bytes, and 8 are needed");
  expect_a_sentence(ended_under({post, numbered(post, 2), numbered(post, 3)}), " before round ");
  expect_a_sentence(ended_under({numbered(post, 7)}), "rank 0 posted round 7, and 1 is its next");
  expect_a_sentence(ended_under({second}), "rank 2 posted a round without having come");
  expect_a_sentence(ended_under({{.kind = Kind::ended, .from = 0}, post}),
                    "rank 0 ");  // It has left, or speaks after its last word.
  expect_a_sentence(ended_under({{.kind = Kind::hello}}), "rank 0 sent a frame out of turn");
}

// Bytes that are no frame, on a connection of a rank that has come.
TEST(HostileFrames, ThatAreNoneEndTheRun) {
  const TcpAddress at{"127.0.0.1", free_port()};
  Processes rank_0(1, [&](int) {
    TcpStore store(at, kRun, 0, 2, kDeadline);
    store.all_gather_object({.sequence = 0}, "own words");
    return 0;
  });
  RawPeer peer = RawPeer::connected(at.port);
  EXPECT_TRUE(peer.join(1, 2, kRun));
  peer.say(Bytes(sizeof(FrameHead), std::byte{0x5a}));
  expect_a_sentence(rank_0.wait(0), "rank 1 sent what is no frame");
}

}  // namespace
}  // namespace lockstep::test
