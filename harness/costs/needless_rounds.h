// Rounds of the rendezvous store that a collective does not need. They change no bit, and no call
// at the device shows them: all hosts wait once more.
#pragma once

#include <cstddef>

#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

// A collective's data goes in rounds, and each round but the last is full: not even one more byte
// for each rank fits. The posts of one rank's store, in order.
class NeedlessRounds {
 public:
  explicit NeedlessRounds(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  // Throws EngineViolation (judge `costs`) if the call goes on behind a round that was not full.
  void posts(const CollectiveCall& call, std::size_t filled);

 private:
  std::size_t ranks_;
  std::size_t filled_ = 0;  // By the post before, which was of the call with this number.
  std::int64_t sequence_ = -1;
};

}  // namespace lockstep
