#include "engine/sim/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = AddressSpace::kAlignment;
constexpr std::size_t kRedZone = 256;
constexpr std::size_t kQuarantine = 64 << 20;
constexpr unsigned char kRed = 0xfd;

std::size_t rounded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t with_zones(std::size_t bytes) { return kRedZone + rounded(bytes) + kRedZone; }

// The red zone behind the block starts at its last byte, not at the next multiple of the alignment.
std::size_t back_zone(std::size_t bytes) { return rounded(bytes) - bytes + kRedZone; }

void fill_words(std::byte* at, std::size_t bytes, std::uint32_t word) {
  std::uint32_t* words = reinterpret_cast<std::uint32_t*>(at);
  std::fill_n(words, bytes / 4, word);
  std::memcpy(at + bytes / 4 * 4, &word, bytes % 4);
}

bool holds(const std::byte* at, std::size_t bytes, std::uint32_t word) {
  const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(at);
  std::uint32_t other = 0;  // No way out of the loop: it takes eight words at once.
  for (std::size_t i = 0; i < bytes / 4; ++i) other |= words[i] ^ word;
  return other == 0 && std::memcmp(at + bytes / 4 * 4, &word, bytes % 4) == 0;
}

// The first byte that is not red, or `bytes`.
std::size_t first_broken(const std::byte* zone, std::size_t bytes) {
  static const struct Reference {
    unsigned char bytes[kAlignment + kRedZone];
    Reference() { std::memset(bytes, kRed, sizeof bytes); }
  } reference;
  if (std::memcmp(zone, reference.bytes, bytes) == 0) return bytes;
  return static_cast<std::size_t>(
      std::find_if(zone, zone + bytes, [](std::byte b) { return b != std::byte{kRed}; }) - zone);
}

}  // namespace

SimMemory::~SimMemory() {
  while (!quarantine_.empty()) retire_oldest();
  for (Blocks* blocks : {&device_, &pinned_}) {
    for (auto& [user, block] : *blocks) check(block, "when the device was closed");
  }
}

void* SimMemory::allocate(std::size_t bytes) {
  void* memory = add(device_, bytes);
  if (!memory) return nullptr;
  in_use_ += bytes;
  high_water_ = std::max(high_water_, in_use_);
  return memory;
}

void* SimMemory::allocate_pinned(std::size_t bytes) { return add(pinned_, bytes); }

void* SimMemory::add(Blocks& blocks, std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  std::byte* const base = space_.take(with_zones(bytes));
  if (!base) return nullptr;
  std::byte* user = base + kRedZone;
  std::memset(base, kRed, kRedZone);
  fill_words(user, bytes, kFresh);
  bytes_poisoned_ += static_cast<std::int64_t>(bytes);
  std::memset(user + bytes, kRed, back_zone(bytes));
  blocks.emplace(user, Block{base, bytes});
  return user;
}

bool SimMemory::release(void* memory) {
  const auto found = device_.find(static_cast<std::byte*>(memory));
  if (found == device_.end()) return false;
  in_use_ -= found->second.bytes;
  return remove(device_, memory);
}

bool SimMemory::release_pinned(void* memory) { return remove(pinned_, memory); }

bool SimMemory::remove(Blocks& blocks, void* memory) {
  const auto found = blocks.find(static_cast<std::byte*>(memory));
  if (found == blocks.end()) return false;
  const Block block = found->second;
  blocks.erase(found);
  check(block, "when it was freed");
  fill_words(block.base + kRedZone, block.bytes, kFreed);
  bytes_poisoned_ += static_cast<std::int64_t>(block.bytes);
  quarantine_.push_back(block);
  quarantined_ += block.bytes;
  while (quarantined_ > kQuarantine) retire_oldest();
  return true;
}

void SimMemory::retire_oldest() {
  const Block block = quarantine_.front();
  quarantine_.pop_front();
  quarantined_ -= block.bytes;
  if (damage_.empty() && !holds(block.base + kRedZone, block.bytes, kFreed)) {
    damage_ = "a freed block of " + std::to_string(block.bytes) + " bytes was written";
  }
  space_.give_back(block.base, with_zones(block.bytes));
}

bool SimMemory::is_pinned(const void* memory, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(memory);
  auto after = pinned_.upper_bound(first);
  if (after == pinned_.begin()) return false;
  const auto& [user, block] = *--after;
  return static_cast<std::size_t>(first - user) + bytes <= block.bytes;
}

void SimMemory::check_red_zones() {
  for (const Blocks* blocks : {&device_, &pinned_}) {
    for (const auto& [user, block] : *blocks) check(block, "at a synchronisation");
  }
}

void SimMemory::check(const Block& block, const char* when) {
  if (!damage_.empty()) return;
  const std::byte* end = block.base + kRedZone + block.bytes;
  const std::size_t front = first_broken(block.base, kRedZone),
                    back = first_broken(end, back_zone(block.bytes));
  if (front == kRedZone && back == back_zone(block.bytes)) return;
  const bool before = front < kRedZone;
  const std::size_t distance = before ? kRedZone - front : back;
  char text[160];
  std::snprintf(text, sizeof text,
                "red zone %s a block of %zu bytes broken, %zu bytes %s it; seen %s",
                before ? "before" : "behind", block.bytes, distance,
                before ? "before" : "after the end of", when);
  damage_ = text;
}

}  // namespace lockstep
