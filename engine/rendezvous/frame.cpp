#include "engine/rendezvous/frame.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/store.h"

namespace lockstep {
namespace {

static_assert(std::is_trivially_copyable_v<FrameHead> &&
              std::has_unique_object_representations_v<FrameHead>);  // No gaps.

constexpr std::size_t kPiece = std::size_t{64} << 10;  // The first bytes of a body that are read.

// The most bytes of a body; most messages have none.
std::size_t most_bytes(Message::Kind kind, bool is_rank) {
  switch (kind) {
    case Message::Kind::post:
      return is_rank ? Store::kOutbox : 0;
    case Message::Kind::part:
      return is_rank ? Store::kMostOfPart : 0;
    case Message::Kind::hello:
      return sizeof(Digest);
    case Message::Kind::challenge:
      return 2 * sizeof(Digest);
    case Message::Kind::proof:
    case Message::Kind::refused:
      return 4096;
    default:
      return 0;
  }
}

// The bytes of a head that come before its seal.
std::span<const std::byte> sealed_part(const FrameHead& head) {
  return std::as_bytes(std::span(&head, 1)).first(offsetof(FrameHead, seal));
}

}  // namespace

FrameHead head_of(const Message& message, Seal* seal) {
  FrameHead head{.kind = message.kind,
                 .from = message.from,
                 .number = message.number,
                 .bytes = message.body.size(),
                 .call = message.call};
  if (seal == nullptr) return head;
  seal->begin(sealed_part(head));
  seal->add(message.body);
  head.seal = seal->end();
  return head;
}

Bytes as_bytes(const std::string& text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}
std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string printable(std::string words) {
  constexpr std::size_t kMost = 200;
  if (words.size() > kMost) words.resize(kMost);
  std::replace_if(
      words.begin(), words.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

// A stranger's body grows by at most what has arrived of it; a rank's is bounded and comes at once.
// A piece is looked at while the next one arrives.
std::span<std::byte> FrameReader::wanted() {
  if (!in_body_) return std::as_writable_bytes(std::span(&head_, 1));
  Bytes& body = message_.body;
  const std::size_t first = head_.bytes - left_;
  piece_ = std::min(left_, is_rank_ ? kPiece : std::max(kPiece, first));
  body.resize(is_rank_ ? head_.bytes : first + piece_);
  return std::span(body).subspan(first, piece_);
}

bool FrameReader::came() {
  if (in_body_) {
    if (seal_) seal_->add(std::span(message_.body).subspan(head_.bytes - left_, piece_));
    left_ -= piece_;
  } else {
    read_head();
    if (seal_) seal_->begin(sealed_part(head_));
  }
  in_body_ = left_ > 0;
  if (!in_body_) check_seal();
  return !in_body_;
}

Message FrameReader::take() { return std::exchange(message_, {}); }

void FrameReader::check_seal() {
  if (seal_ && !are_same(head_.seal, seal_->end()))
    throw BadFrame(speaker_ + " sent a frame whose seal is wrong");
}

void FrameReader::read_head() {
  const FrameHead& head = head_;
  if (head.magic != FrameHead::kMagic || head.kind > Message::Kind::taken)
    throw BadFrame(speaker_ + " sent what is no frame of this version");
  if (head.bytes > most_bytes(head.kind, is_rank_)) {
    throw BadFrame(speaker_ + " announces " + std::to_string(head.bytes) + " bytes, and at most " +
                   std::to_string(most_bytes(head.kind, is_rank_)) + " can come");
  }
  if (!is_well_formed(head.call)) throw BadFrame(speaker_ + " posted no call");
  message_ = {.kind = head.kind, .from = head.from, .number = head.number, .call = head.call};
  left_ = head.bytes;
}

}  // namespace lockstep
