// The calls that a rank made of its communicator, and the comparison of ranks before data is
// trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "engine/device/exchange.h"

namespace lockstep {

// One call. Plain bytes without gaps, so that it can lie in memory that processes share and in
// frames of a network, which would show what a gap holds.
struct CollectiveCall {
  // Counts from 0, barriers of hosts included. Of a send: its microbatch.
  std::int64_t sequence = -1;
  CollectiveKind kind = CollectiveKind::barrier;
  std::uint8_t group = 0;  // Letters of a group's rounds have its number; 0: all other calls.
  char unused[2] = "";
  std::int32_t unit = -1;
  std::uint64_t bytes = 0;  // The size of each rank's part.
  char purpose[24] = "";
  char stream[24] = "";
  std::uint64_t documents = 0;  // CollectiveName::documents

  // Whether two ranks called the same. Streams may differ: each rank has its own.
  bool agrees_with(const CollectiveCall& other) const;
  // Whether two sends between the same ranks come in the order of sending.
  bool is_on_the_way_of(const CollectiveCall& other) const;
};

// "collective 12, all_gather (gather of unit 3, 4096 bytes a rank) on stream gather".
std::string text(const CollectiveCall& call);

// Whether all fields are what a rank writes: a known kind, and names that end within their arrays
// and can be printed. A call that comes from another machine is held to it before it is read.
bool is_well_formed(const CollectiveCall& call);
// The same of the call of a letter (Store::send), which may be a send too.
bool is_well_formed_in_letter(const CollectiveCall& call);

// A send as both its ranks write it down; it takes no number.
CollectiveCall call_of_transfer(const CollectiveName& name, std::size_t bytes,
                                const std::string& stream);

class CollectiveLedger {
 public:
  const CollectiveCall& append(CollectiveKind kind, const CollectiveName& name, std::size_t bytes,
                               const std::string& stream);
  // The latest calls, oldest first: enough for a report of a run of any length.
  const std::deque<CollectiveCall>& calls() const { return calls_; }
  CollectiveCall last() const { return calls_.empty() ? CollectiveCall{} : calls_.back(); }
  // An empty call if it was not made, or was made long ago.
  CollectiveCall at(std::int64_t sequence) const;

 private:
  static constexpr std::size_t kKept = 64;
  std::deque<CollectiveCall> calls_;
  std::int64_t next_ = 0;
};

// Throws CollectiveMismatch, naming both sides, unless they agree.
void require_same_call(int rank, const CollectiveCall& call, int peer,
                       const CollectiveCall& peers_call);

}  // namespace lockstep
