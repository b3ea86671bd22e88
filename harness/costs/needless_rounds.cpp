#include "harness/costs/needless_rounds.h"

#include <string>
#include <utility>

#include "engine/device/violation.h"
#include "engine/rendezvous/store.h"

namespace lockstep {

void NeedlessRounds::posts(const CollectiveCall& call, std::size_t filled) {
  const std::size_t before = std::exchange(filled_, filled);
  const bool goes_on = std::exchange(sequence_, call.sequence) == call.sequence;
  const bool moves_data =
      call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::all_to_all;
  if (!goes_on || !moves_data || before + ranks_ > Store::kOutbox) return;
  throw EngineViolation(JudgeKind::costs, text(call) + " takes one more round of the store, and " +
                                              std::to_string(before) + " of " +
                                              std::to_string(Store::kOutbox) +
                                              " bytes of the round before were used");
}

}  // namespace lockstep
