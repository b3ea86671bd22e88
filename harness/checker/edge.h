// An edge that the host's code adds: all calls of one kind, for one event or stream, by one waiter.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace lockstep {

struct Edge {
  enum class Kind : std::uint8_t { wait, synchronize_event, synchronize_stream };
  Kind kind;
  int awaited;      // The event, or the stream synchronised.
  int waiter = -1;  // The stream that waits; -1 is the host.
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

struct EdgeUse {
  int recorder = -1;       // The stream of the record that was waited for last; unused for streams.
  std::int64_t calls = 0;  // Calls that waited for something.
};

}  // namespace lockstep
