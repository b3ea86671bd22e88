// Ranges for a profiler that watches this process: names of the host's current work.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class Profiler {
 public:
  virtual ~Profiler() = default;
  // Ranges may end in any order, and in another thread than the one that began them.
  virtual std::uint64_t begin(const std::string& name) = 0;
  virtual void end(std::uint64_t range) noexcept = 0;
};

}  // namespace lockstep
