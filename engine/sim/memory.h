// Device and pinned memory of the simulated device: host memory, poisoned when allocated and when
// freed, with red zones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "engine/sim/address_space.h"
#include "kernels/diagnostics/poison.h"

namespace lockstep {

class SimMemory {
 public:
  // Both are signalling NaN as float and as pair of bf16, and tell apart "never written" from
  // "freed".
  static constexpr std::uint32_t kFresh = PoisonMemory::kFresh * 0x10001u;
  static constexpr std::uint32_t kFreed = PoisonMemory::kFreed * 0x10001u;

  SimMemory() = default;
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;
  ~SimMemory();

  void* allocate(std::size_t bytes);  // Null when the machine has no more.
  void* allocate_pinned(std::size_t bytes);
  // Poisons and keeps the block in quarantine. False if nothing is allocated there.
  bool release(void* memory);
  bool release_pinned(void* memory);

  bool is_pinned(const void* memory, std::size_t bytes) const;
  std::int64_t bytes_poisoned() const { return bytes_poisoned_; }
  std::size_t in_use() const { return in_use_; }
  std::size_t high_water() const { return high_water_; }

  // Looks at every red zone and keeps what is found in `damage`.
  void check_red_zones();
  // The first write outside an allocation that was noticed, as a sentence; "" if there was none.
  const std::string& damage() const { return damage_; }

 private:
  struct Block {
    std::byte* base;  // For the red zone in front.
    std::size_t bytes;
  };
  using Blocks = std::map<const std::byte*, Block>;  // By the address that the user has.

  void* add(Blocks& blocks, std::size_t bytes);
  bool remove(Blocks& blocks, void* memory);
  void check(const Block& block, const char* when);
  void retire_oldest();

  AddressSpace space_;
  Blocks device_, pinned_;
  std::deque<Block> quarantine_;
  std::size_t quarantined_ = 0;
  std::size_t in_use_ = 0, high_water_ = 0;
  std::int64_t bytes_poisoned_ = 0;
  std::string damage_;
};

}  // namespace lockstep
