// Measures where the time of a process that judges cases goes: by kind of call at the device, with
// the number of calls. It is off unless somebody asks for it, as `lockstep fuzz --times` does.
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
  static void begin();  // This process counts from here on.
  static bool counts();
  static TimesByKind take();  // Returns the times since the last call.

  // A part counts from its making to its end. Ranks that are threads take turns, so one lives at a
  // time.
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

// Returns the backend behind a layer that counts its calls.
std::unique_ptr<Backend> timed(std::unique_ptr<Backend> backend);

}  // namespace lockstep
