// Every allocation of the run, by generation: addresses are reused, generations are not.
#pragma once

#include <array>
#include <cstdint>
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
  bool is_at(const void* address) const {
    return live && address >= base && address < base + bytes;
  }
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
  Allocation* live_at(const void* address);              // Null when the byte is in none.
  const Allocation* last_at(const void* address) const;  // The latest that is gone.
  Allocation& operator[](int id) { return *at(all_, id); }

 private:
  // Addresses recur step by step: this finds most allocations without a search.
  Allocation*& found_before(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    return found_[(bits * 0x9e3779b97f4a7c15) >> 54];
  }

  std::vector<std::unique_ptr<Allocation>> all_;
  LiveBlocks live_;
  std::array<Allocation*, 1024> found_{};
};

}  // namespace lockstep
