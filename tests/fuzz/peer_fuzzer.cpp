// libFuzzer's entry: a rank 0 over TCP and a peer that speaks to it by the input: the handshake,
// with the key or without, frames of any kind with right seals, and bytes that are none. Whatever
// it says, rank 0 ends within its deadline, by finishing its round or by an exception with a
// sentence, and what it reads of the round is what a rank with the key has posted.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "engine/rendezvous/tcp_store.h"
#include "tests/engine/rendezvous/raw_peer.h"

namespace lockstep {
namespace {

using test::RawPeer;
using Kind = Message::Kind;

constexpr double kDeadline = 0.02;
const RunIdentity kRun{.name = "job", .key = "the key of the run"};
const std::string kWords = "words of a rank";

void refute(const std::string& why) {
  std::fprintf(stderr, "REFUTED: %s\n", why.c_str());
  std::abort();
}

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  bool is_done() const { return at_ == end_; }
  std::uint8_t byte() { return at_ == end_ ? std::uint8_t{0} : *at_++; }
  test::Bytes bytes(std::size_t most) {
    const std::size_t count = std::min<std::size_t>(most, static_cast<std::size_t>(end_ - at_));
    const auto* first = reinterpret_cast<const std::byte*>(at_);
    at_ += count;
    return {first, first + count};
  }

 private:
  const std::uint8_t *at_, *end_;
};

// Eight bytes of length and the words, as all_gather_object() posts them.
test::Bytes posted_words(const std::string& words) {
  const std::uint64_t length = words.size();
  test::Bytes body(sizeof length);
  std::memcpy(body.data(), &length, sizeof length);
  const test::Bytes text = as_bytes(words);
  body.insert(body.end(), text.begin(), text.end());
  return body;
}

Message drawn(Script& script) {
  Message message{.kind = static_cast<Kind>(script.byte() % 11),
                  .from = static_cast<std::int8_t>(script.byte()),
                  .number = script.byte() % 4u};
  message.call.sequence = script.byte() % 2;
  message.call.kind = static_cast<CollectiveKind>(script.byte() % 8);
  const std::uint8_t how = script.byte();
  message.body = how < 64 ? posted_words(kWords) : script.bytes(how);
  return message;
}

// Speaks; `proved` says whether it has had the key.
void speak(std::uint16_t port, Script script, std::atomic<bool>& proved) {
  RawPeer peer = RawPeer::connected(port, 20);  // Rank 0 may be gone before a slow peer comes.
  while (!script.is_done()) {
    switch (script.byte() % 5) {
      case 0:
        proved = true;
        if (!peer.prove(script.byte() % 4, 2, kRun)) return;
        break;
      case 1:
        if (!peer.prove(1, 2, {.name = "job", .key = "another"})) return;
        break;
      case 2:
        if (!peer.say(drawn(script))) return;
        break;
      case 3:
        if (!peer.say(script.bytes(script.byte()))) return;
        break;
      default: {  // The last frame again, or a new connection.
        const test::Bytes frame = peer.frame(drawn(script));
        if (!peer.say(frame) || !peer.say(frame)) return;
      }
    }
  }
  if (script.byte() == 0) peer.is_closed_within(1);
}

}  // namespace

int try_input(const std::uint8_t* data, std::size_t size) {
  const TcpAddress at{"127.0.0.1", test::free_port()};
  std::atomic<bool> proved = false;
  std::thread other([&] { speak(at.port, Script(data, size), proved); });
  const auto began = Store::Clock::now();
  try {
    TcpStore store(at, kRun, 0, 2, kDeadline);
    const std::vector<std::string> words = store.all_gather_object({.sequence = 0}, "own words");
    if (!proved) refute("a stranger took part in a round");
    if (words.size() != 2 || words[0] != "own words") refute("a round has other words");
  } catch (const std::exception& ended) {
    if (*ended.what() == '\0') refute("rank 0 ended without a reason");
  }
  const auto took = Store::Clock::now() - began;
  other.join();
  if (took > std::chrono::seconds(5)) refute("rank 0 was held");
  return 0;
}

}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::try_input(data, size);
}
