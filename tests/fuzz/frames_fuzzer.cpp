// libFuzzer's entry: whatever bytes a connection carries, its reader and the table of ranks behind
// it take what a rank may send at that moment, within their bounds, or refuse it with a sentence.
// The input's bytes come in pieces of any size; before a byte 0xff the reader begins to take them
// for a rank's, whose number follows.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/endpoint.h"
#include "engine/rendezvous/frame.h"

namespace lockstep {
namespace {

using Kind = Message::Kind;

constexpr int kRanks = 4;

void refute(const char* why) {
  std::fprintf(stderr, "REFUTED: %s\n", why);
  std::abort();
}

void require_bounded(const Message& message, bool is_rank) {
  const std::size_t most = is_rank ? Store::kOutbox : 4096;
  if (message.body.size() > most) refute("a body is longer than any that may come");
  if (message.kind > Kind::failed) refute("a message is of no kind");
  if (!is_well_formed(message.call)) refute("a message has no call");
  if (printable(as_text(message.body)).size() > 200) refute("words are printed at any length");
}

// As the server hears a rank that it has welcomed.
void hear(Membership& membership, int rank, Message message) {
  if (message.from != rank || message.kind < Kind::post) return;
  membership.require_next(message);
  membership.take_in(shared(std::move(message)));
  for (int r = 0; r < kRanks; ++r) {
    if (membership.peer(r).rounds.size() > 2) refute("a rank ran ahead by more than a round");
  }
}

}  // namespace

int try_input(const std::uint8_t* data, std::size_t size) {
  std::span<const std::uint8_t> left(data, size);
  Membership membership(0, kRanks);
  FrameReader reader;
  int rank = -1;
  try {
    while (left.size() > 2) {
      if (rank < 0 && left[0] == 0xff) {
        rank = 1 + left[1] % (kRanks - 1);
        reader = FrameReader();
        reader.trust("rank " + std::to_string(rank));
        if (left[1] >= 128) reader.require_seals(Seal(Digest{}));
        membership.take_in(shared({.kind = Kind::here, .from = rank}));
        left = left.subspan(2);
      }
      const std::span<std::byte> wanted = reader.wanted();
      if (wanted.size() > (rank >= 0 ? Store::kOutbox : std::max(size, std::size_t{64} << 10)))
        refute("memory is taken for bytes that did not come");
      if (wanted.size() > left.size()) return 0;
      std::memcpy(wanted.data(), left.data(), wanted.size());
      left = left.subspan(wanted.size());
      if (!reader.came()) continue;
      Message message = reader.take();
      require_bounded(message, rank >= 0);
      if (rank >= 0) hear(membership, rank, std::move(message));
    }
  } catch (const BadFrame& refused) {
    if (*refused.what() == '\0') refute("a frame is refused without a reason");
  }
  return 0;
}

}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::try_input(data, size);
}
