// Where the time of a process goes that judges cases: by kind of call at the device, with the
// number of calls. Off unless it is asked for; `lockstep fuzz --times` asks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "engine/device/backend.h"
#include "harness/base/stopwatch.h"

namespace lockstep {

struct TimeOfKind {
  double seconds = 0;
  std::int64_t calls = 0;
};
using TimesByKind = std::map<std::string, TimeOfKind>;

class TimeSpent {
 public:
  static void begin();  // From here on this process counts.
  static bool counts();
  static TimesByKind take();  // What was counted since the last call.

  // Counts from its making to its end. Ranks that are threads take turns, so one lives at a time.
  class Part {
   public:
    explicit Part(const char* kind) : kind_(kind) {}
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    const char* const kind_;
    const Stopwatch watch_;
  };
};

// The same backend, its calls counted.
std::unique_ptr<Backend> timed(std::unique_ptr<Backend> backend);

}  // namespace lockstep
