#include "engine/rendezvous/frame.h"

#include <algorithm>
#include <cstring>
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

}  // namespace

EncodedMessage encoded(const Message& message) {
  const FrameHead head{.kind = message.kind,
                       .from = message.from,
                       .number = message.number,
                       .bytes = message.body.size(),
                       .call = message.call};
  std::vector<std::byte> bytes(sizeof head + message.body.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!message.body.empty())
    std::memcpy(bytes.data() + sizeof head, message.body.data(), message.body.size());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Tag sealed(Seal& seal, const EncodedMessage& encoded_message) {
  const std::span all(*encoded_message);
  return seal.next(all.first(sizeof(FrameHead)), all.subspan(sizeof(FrameHead)));
}

std::vector<std::byte> as_bytes(const std::string& text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}
std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string printable(std::string words) {
  constexpr std::size_t kMost = 200;
  if (words.size() > kMost) words.resize(kMost);
  std::replace_if(
      words.begin(), words.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

FrameReader::FrameReader() : head_(sizeof(FrameHead)) {}

// A stranger's body grows by at most what has arrived of it; a rank's is bounded and comes at once.
std::span<std::byte> FrameReader::wanted() {
  if (part_ == Part::head) return head_;
  if (part_ == Part::seal) return tag_;
  std::vector<std::byte>& body = message_.body;
  const std::size_t first = body.size();
  piece_ = is_rank_ ? left_ : std::min(left_, std::max(kPiece, first));
  body.resize(first + piece_);
  return std::span(body).subspan(first);
}

bool FrameReader::came() {
  if (part_ == Part::seal) {
    check_seal();
    return true;
  }
  if (part_ == Part::head) {
    read_head();
    part_ = Part::body;
  } else {
    left_ -= piece_;
  }
  if (left_ > 0) return false;
  part_ = Part::seal;
  return !seal_;
}

Message FrameReader::take() {
  part_ = Part::head;
  return std::exchange(message_, {});
}

void FrameReader::check_seal() {
  if (!are_same(tag_, seal_->next(head_, message_.body)))
    throw BadFrame(speaker_ + " sent a frame whose seal is wrong");
}

void FrameReader::read_head() {
  FrameHead head;
  std::memcpy(&head, head_.data(), sizeof head);
  if (head.magic != FrameHead::kMagic || head.kind > Message::Kind::failed)
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
