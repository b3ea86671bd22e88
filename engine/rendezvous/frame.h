// The messages of a TcpStore, and their frames: the bytes in which they go over a connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/rendezvous/collective_ledger.h"
#include "engine/rendezvous/handshake.h"

namespace lockstep {

// Bytes of a body, which resize() leaves as they are: what is read into them is not filled before.
template <class T>
struct Unfilled : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Unfilled<U>;
  };
  template <class U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... From>
  void construct(U* place, From&&... from) {
    ::new (static_cast<void*>(place)) U(std::forward<From>(from)...);
  }
};
using Bytes = std::vector<std::byte, Unfilled<std::byte>>;

struct Message {
  // hello, challenge and proof: as handshake.h has them; a proof's body is a digest and the run's
  // name. welcome and refused are the answers to it. beat: rank 0 is alive. here, ended, failed: a
  // rank has joined or left. post: a rank has posted a round; the body is its outbox. part: of a
  // letter, for one rank alone; taken: that rank has taken it.
  enum class Kind : std::uint32_t {
    hello,
    challenge,
    proof,
    welcome,
    refused,
    beat,
    here,
    post,
    ended,
    failed,
    part,
    taken
  };
  Kind kind = Kind::hello;
  std::int32_t from = 0;
  // In a post the round; in a hello the number of ranks; in a part or a taken whom it is for.
  std::uint32_t number = 0;
  CollectiveCall call = {};
  Bytes body = {};
};

// Whether a message is for one rank alone.
inline bool is_for_one(const Message& message) {
  return message.kind == Message::Kind::part || message.kind == Message::Kind::taken;
}

// Whoever is to have a message has the same one.
using SharedMessage = std::shared_ptr<const Message>;
inline SharedMessage shared(Message message) {
  return std::make_shared<const Message>(std::move(message));
}

// The first bytes of a frame, which the body follows. Both sides use the layout of this build,
// which the magic number confirms.
struct FrameHead {
  static constexpr std::uint32_t kMagic = 0x4c53'4e37;  // Identifies this layout.
  std::uint32_t magic = kMagic;
  Message::Kind kind = Message::Kind::hello;
  std::int32_t from = 0;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;  // The size of the body.
  CollectiveCall call = {};
  Tag seal = {};  // Over all that is before it, and the body; zeros where there is no seal yet.
};
// The head of a message's frame, sealed unless `seal` is null.
FrameHead head_of(const Message& message, Seal* seal);

Bytes as_bytes(const std::string& text);
std::string as_text(std::span<const std::byte> bytes);
// The words of another process as a line for a terminal: cut, and with `?` for what is no printable
// character.
std::string printable(std::string words);

// Makes messages of the bytes of a connection, and knows nothing of sockets. For a stranger it asks
// for memory as bytes arrive, not as a frame announces them.
class FrameReader {
 public:
  // From now on frames are those of a rank, which reports name so: "rank 1". A stranger's are
  // short.
  void trust(std::string speaker) {
    speaker_ = std::move(speaker);
    is_rank_ = true;
  }
  // From now on each frame has a seal.
  void require_seals(Seal seal) { seal_ = std::move(seal); }

  // Where the next bytes belong; call came() once when all of them are there. True: a message is
  // whole, and is to be taken. Throws BadFrame for what no rank sends: nothing can be read after
  // that.
  std::span<std::byte> wanted();
  bool came();
  Message take();

 private:
  void read_head();
  void check_seal();

  bool in_body_ = false;
  std::string speaker_ = "a stranger";
  bool is_rank_ = false;
  std::optional<Seal> seal_;
  FrameHead head_;
  Message message_;
  std::size_t left_ = 0, piece_ = 0;  // The bytes of the body that have not come, and those of
                                      // them that are being read.
};

}  // namespace lockstep
