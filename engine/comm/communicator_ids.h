// How ranks agree on a library's communicator: on one of an earlier run that all of them can join
// again, else on a new one of the first rank.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/backend_communicator.h"

namespace lockstep {

// A rank offers the ids that it can join again, or the one that it has just made.
struct OfferedIds {
  std::vector<CommunicatorId> ids;
  bool is_new = false;
};
std::string words_of(const OfferedIds& offered);
OfferedIds read_offered_ids(const std::string& words);  // Throws BadFrame on other words.

// Returns the new id of the first rank, or the first of its ids that all ranks offer; empty where
// there is none.
std::optional<CommunicatorId> agreed_id(std::span<const OfferedIds> of_ranks);

}  // namespace lockstep
