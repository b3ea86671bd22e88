#include "engine/comm/communicator_ids.h"

#include <algorithm>

#include "engine/rendezvous/collective_errors.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

constexpr char kNew = '+', kSpare = '-';

}  // namespace

// Before each id stands its length, in one byte.
std::string words_of(const OfferedIds& offered) {
  std::string words(1, offered.is_new ? kNew : kSpare);
  for (const CommunicatorId& id : offered.ids) {
    require(!id.empty() && id.size() < 256, "an id has 1 to 255 bytes");
    words += static_cast<char>(id.size());
    for (const std::byte byte : id) words += static_cast<char>(byte);
  }
  return words;
}

OfferedIds read_offered_ids(const std::string& words) {
  const auto refuse_unless = [](bool holds) {
    if (!holds) throw BadFrame("a rank offers no list of communicators");
  };
  refuse_unless(!words.empty() && (words.front() == kNew || words.front() == kSpare));
  OfferedIds offered{.ids = {}, .is_new = words.front() == kNew};
  for (std::size_t at = 1; at < words.size();) {
    const std::size_t length = static_cast<unsigned char>(words[at++]);
    refuse_unless(length > 0 && length <= words.size() - at);
    CommunicatorId& id = offered.ids.emplace_back();
    for (const char byte : words.substr(at, length)) id.push_back(static_cast<std::byte>(byte));
    at += length;
  }
  refuse_unless(!offered.is_new || offered.ids.size() == 1);
  return offered;
}

std::optional<CommunicatorId> agreed_id(std::span<const OfferedIds> of_ranks) {
  const OfferedIds& first = of_ranks.front();
  if (first.is_new) return first.ids.front();
  for (const CommunicatorId& id : first.ids) {
    if (std::ranges::all_of(of_ranks, [&](const OfferedIds& one) {
          return std::ranges::find(one.ids, id) != one.ids.end();
        }))
      return id;
  }
  return {};
}

}  // namespace lockstep
