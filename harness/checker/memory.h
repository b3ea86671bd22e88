// Every allocation of the run, by generation: addresses are reused, generations are not.
#pragma once

#include <memory>
#include <vector>

#include "harness/access/shadow.h"
#include "harness/checker/live_blocks.h"
#include "harness/checker/undefined.h"
#include "kernels/core/at.h"

namespace lockstep {

struct Allocation {
  Allocation(int id_, const void* base_, std::size_t bytes_, bool pinned_)
      : id(id_),
        base(static_cast<const std::byte*>(base_)),
        bytes(static_cast<std::int64_t>(bytes_)),
        pinned(pinned_),
        undefined(bytes) {}
  int id;
  const std::byte* base;
  std::int64_t bytes;
  bool pinned;
  bool live = true;
  Shadow shadow;
  Undefined undefined;
};

class CheckedMemory {
 public:
  void allocate(const void* base, std::size_t bytes, bool pinned);
  void release(Allocation& allocation);
  // Null when the byte is in none.
  Allocation* live_at(const void* address) { return live_.at(address); }
  const Allocation* last_at(const void* address) const;  // The latest that is gone.
  Allocation& operator[](int id) { return *at(all_, id); }

 private:
  std::vector<std::unique_ptr<Allocation>> all_;
  LiveBlocks<Allocation*, nullptr> live_;
};

}  // namespace lockstep
