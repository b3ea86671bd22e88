#include "engine/sim/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStep = 4 << 20;
constexpr std::size_t kLarge = 1 << 20;  // Its pages are returned to the machine while it is free.
// Mapped for every space, and left to the next at its place: new pages cost more than most cases.
constexpr std::size_t kKept = 16 << 20;
#ifdef __SANITIZE_THREAD__  // It knows of no memory between the program and the libraries.
constexpr std::uintptr_t kFirst = std::uintptr_t{0x7e90} << 32, kApart = std::uintptr_t{1} << 33;
#else
constexpr std::uintptr_t kFirst = std::uintptr_t{0x2000} << 32, kApart = std::uintptr_t{1} << 40;
#endif

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

struct Place {
  bool taken = false, mapped = false;
};
std::mutex places_mutex;
std::vector<Place> places;  // NOLINT: of the process.

// The lowest that no open space has.
std::pair<std::size_t, Place> take_place() {
  const std::lock_guard lock(places_mutex);
  const auto free =
      std::find_if(places.begin(), places.end(), [](const Place& place) { return !place.taken; });
  const std::size_t index = free - places.begin();
  if (free == places.end()) places.emplace_back();
  places[index].taken = true;
  return {index, places[index]};
}

void leave_place(std::size_t index, bool mapped) {
  const std::lock_guard lock(places_mutex);
  places[index] = {.taken = false, .mapped = mapped};
}

void forget_pages(std::byte* begin, std::byte* end) {
  const auto first = rounded(reinterpret_cast<std::uintptr_t>(begin), kPage);
  const auto last = reinterpret_cast<std::uintptr_t>(end) / kPage * kPage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

std::byte* map(void* at, std::size_t bytes) {
  void* const memory = ::mmap(at, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (memory == at) {
    ::madvise(memory, bytes,
              MADV_HUGEPAGE);  // One fault for 2 MiB, where the kernel has such pages.
    return static_cast<std::byte*>(memory);
  }
  if (memory != MAP_FAILED) ::munmap(memory, bytes);  // A kernel that takes the address as a hint.
  return nullptr;
}

}  // namespace

AddressSpace::AddressSpace() {
  const auto [index, place] = take_place();
  place_ = index;
  begin_ = next_ = end_ = reinterpret_cast<std::byte*>(kFirst + place_ * kApart);
  if (place.mapped || map(begin_, kKept)) end_ += kKept;
}

// The next space at this place finds what a new one would: zeros.
AddressSpace::~AddressSpace() {
  std::byte* const kept = std::min(end_, begin_ + kKept);
  std::byte* const used = std::min(next_, kept);
  std::fill(begin_, used, std::byte{});
  forget_pages(used, kept);  // Writes to memory that was never taken.
  if (kept < end_) ::munmap(kept, end_ - kept);
  leave_place(place_, kept > begin_);
}

bool AddressSpace::grow(std::size_t bytes) {
  const std::size_t more = rounded(bytes, kStep);
  if (!map(end_, more)) return false;
  end_ += more;
  return true;
}

std::byte* AddressSpace::take(std::size_t bytes) {
  if (bytes > kApart / 2) return nullptr;
  const std::size_t size = rounded(bytes, kAlignment);
  const auto found = free_.find(size);
  if (found != free_.end() && !found->second.empty()) {
    std::byte* const block = found->second.back();
    found->second.pop_back();
    return block;
  }
  const std::size_t left = end_ - next_;
  if (size > left && !grow(size - left)) return nullptr;
  std::byte* const block = next_;
  next_ += size;
  return block;
}

void AddressSpace::give_back(std::byte* block, std::size_t bytes) {
  const std::size_t size = rounded(bytes, kAlignment);
  if (size >= kLarge) forget_pages(block, block + size);
  free_[size].push_back(block);
}

}  // namespace lockstep
