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
constexpr std::size_t kLarge = 1 << 20;  // Gives its pages back to the machine while nobody has it.
#ifdef __SANITIZE_THREAD__               // It knows of no memory between the program and the libraries.
constexpr std::uintptr_t kFirst = std::uintptr_t{0x7e90} << 32, kApart = std::uintptr_t{1} << 33;
#else
constexpr std::uintptr_t kFirst = std::uintptr_t{0x2000} << 32, kApart = std::uintptr_t{1} << 40;
#endif

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

constexpr std::size_t kKept =
    16 << 20;  // Of a closed space, for the next one there: new pages cost more than most cases.

struct Place {
  bool taken = false;
  std::size_t mapped = 0;
};
std::mutex places_mutex;
std::vector<Place> places;  // NOLINT: of the process.

// The lowest that no open space has, and how much is mapped there.
std::pair<std::size_t, std::size_t> take_place() {
  const std::lock_guard lock(places_mutex);
  const auto free = std::find_if(places.begin(), places.end(), [](const Place& place) { return !place.taken; });
  const auto place = static_cast<std::size_t>(free - places.begin());
  if (free == places.end()) places.emplace_back();
  places[place].taken = true;
  return {place, places[place].mapped};
}

void leave_place(std::size_t place, std::size_t mapped) {
  const std::lock_guard lock(places_mutex);
  places[place] = {false, mapped};
}

std::byte* map(void* at, std::size_t bytes) {
  void* const memory =
      ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (memory == at) return static_cast<std::byte*>(memory);
  if (memory != MAP_FAILED) ::munmap(memory, bytes);  // A kernel that takes the address as a hint.
  return nullptr;
}

}  // namespace

AddressSpace::AddressSpace() {
  const auto [place, mapped] = take_place();
  place_ = place;
  begin_ = next_ = reinterpret_cast<std::byte*>(kFirst + place * kApart);
  end_ = begin_ + mapped;
}

AddressSpace::~AddressSpace() {
  const auto mapped = static_cast<std::size_t>(end_ - begin_), kept = std::min(mapped, kKept);
  if (mapped > kept) ::munmap(begin_ + kept, mapped - kept);
  leave_place(place_, kept);
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
  const auto left = static_cast<std::size_t>(end_ - next_);
  if (size > left && !grow(size - left)) return nullptr;
  std::byte* const block = next_;
  next_ += size;
  return block;
}

void AddressSpace::give_back(std::byte* block, std::size_t bytes) {
  const std::size_t size = rounded(bytes, kAlignment);
  if (size >= kLarge) {
    const std::size_t skip =
        rounded(reinterpret_cast<std::uintptr_t>(block), kPage) - reinterpret_cast<std::uintptr_t>(block);
    ::madvise(block + skip, (size - skip) / kPage * kPage, MADV_DONTNEED);
  }
  free_[size].push_back(block);
}

}  // namespace lockstep
