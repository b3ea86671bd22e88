#include "engine/rendezvous/handshake.h"

namespace lockstep {
namespace {

constexpr std::string_view kNoKey = "lockstep without a key";

std::span<const std::byte> bytes_of_number(const auto& number) {
  return std::as_bytes(std::span(&number, 1));
}

}  // namespace

Handshake::Handshake(const std::string& key, int rank, std::uint32_t ranks,
                     std::span<const std::byte> of_rank, std::span<const std::byte> of_rank_0)
    : secret_(hmac(bytes_of(key.empty() ? kNoKey : key),
                   {bytes_of("lockstep rendezvous 1"), bytes_of_number(rank),
                    bytes_of_number(ranks), of_rank, of_rank_0})) {}

Digest Handshake::proof_of_rank_0() const {
  return hmac(secret_, {bytes_of("rank 0 has the key")});
}
Digest Handshake::proof_of_rank(std::span<const std::byte> run) const {
  return hmac(secret_, {bytes_of("a rank has the key, and is of run "), run});
}
Seal Handshake::seal_of_rank_0() const {
  return Seal(hmac(secret_, {bytes_of("frames of rank 0")}));
}
Seal Handshake::seal_of_rank() const { return Seal(hmac(secret_, {bytes_of("frames of rank")})); }

}  // namespace lockstep
