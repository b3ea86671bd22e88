// How a rank and rank 0 prove to each other that both have the key of the run, and how they protect
// the frames that follow. Neither sends the key, and what one connection has carried proves nothing
// on another:
//
//   rank to rank 0   hello       its rank, the number of ranks, a random number
//   rank 0 to rank   challenge   another random number, and rank 0's proof
//   rank to rank 0   proof       the rank's proof, which covers the run's name, and that name
//
// All later frames of both directions are sealed. Without a key anybody can compute all of this;
// the seals then detect damage alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "engine/rendezvous/mac.h"

namespace lockstep {

// What all processes of a run have in common.
struct RunIdentity {
  std::string name;      // Tells runs apart, and is no secret; may be "".
  std::string key = {};  // Is secret; "" if there is none.
};

// What both sides compute from the key and the two random numbers of a connection.
class Handshake {
 public:
  Handshake(const std::string& key, int rank, std::uint32_t ranks,
            std::span<const std::byte> of_rank, std::span<const std::byte> of_rank_0);
  Digest proof_of_rank_0() const;
  Digest proof_of_rank(std::span<const std::byte> run) const;
  Seal seal_of_rank_0() const;
  Seal seal_of_rank() const;

 private:
  Digest secret_;
};

// The two of a challenge's body, or of any bytes.
inline std::pair<std::span<const std::byte>, std::span<const std::byte>> halves(
    std::span<const std::byte> bytes) {
  return {bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)};
}

}  // namespace lockstep
