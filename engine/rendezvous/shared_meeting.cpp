#include "engine/rendezvous/shared_meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <thread>

#include "kernels/core/require.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kMagic = 0x4c53'7368;  // Of this layout.

struct Header {
  std::uint32_t magic, ranks;
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

}  // namespace

// A number that other processes wait for.
struct SharedMeeting::Counter {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> asleep;  // Processes; one that died there is counted for good, which costs a call of set.
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  // Whoever counts itself asleep before this looks is woken, and whoever does so later sees the number.
  void set(std::uint32_t to) {
    value.store(to);
    if (asleep.load() > 0) ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // Returns when it is not `seen` any more, or soon: what else can happen has to be looked at too. Ranks run alike, so
  // that the other one often comes sooner than the system would wake this one.
  void wait_for_change(std::uint32_t seen) {
    const auto end = Clock::now() + std::chrono::microseconds(20);
    while (Clock::now() < end) {
      if (value.load(std::memory_order_acquire) != seen) return;
    }
    const timespec soon{0, 20'000'000};
    ++asleep;
    ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &soon, nullptr, 0);
    --asleep;
  }
};

struct alignas(64) SharedMeeting::Mailbox {
  std::atomic<std::uint32_t> state;
  Counter posted, taken;  // Rounds.
  CollectiveCall call;    // Of the last round posted, which stays until all have taken.
};

namespace {

constexpr std::size_t kPage = 4096;
std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

SharedMeeting::Mailbox& SharedMeeting::mailbox(int rank) const {
  return reinterpret_cast<Mailbox*>(static_cast<std::byte*>(memory_) + kPage)[rank];
}

const std::byte* SharedMeeting::outbox_of(int peer) const {
  const std::size_t first = kPage + round_up(static_cast<std::size_t>(size()) * sizeof(Mailbox));
  return static_cast<const std::byte*>(memory_) + first + static_cast<std::size_t>(peer) * kOutbox;
}

// ---- To be there ----------------------------------------------------------------------------------------------------

// Filled with zeros by the system: everybody is absent, and nothing was posted.
void SharedMeeting::create(const std::string& path, int ranks) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const int file = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail(fresh);
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t bytes = kPage + round_up(count * sizeof(Mailbox)) + count * kOutbox;
  const Header header{kMagic, static_cast<std::uint32_t>(ranks)};
  const bool written = ::ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
                       ::pwrite(file, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
  ::close(file);
  if (!written || ::rename(fresh.c_str(), path.c_str()) != 0) fail(path);
}

SharedMeeting::SharedMeeting(const std::string& path, int rank, int ranks, double deadline_s)
    : Meeting(rank, ranks, deadline_s) {
  const Clock::time_point end = Clock::now() + deadline();
  while (!open(path)) {
    if (Clock::now() >= end) {
      throw CollectiveHang("rank " + std::to_string(rank) + " found no place to join at " + path + " " + within());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// False if there is none yet, or an older one.
bool SharedMeeting::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return false;
  if (file < 0) fail(path);
  struct stat status {};
  Header header{};
  const bool read = ::fstat(file, &status) == 0 && ::pread(file, &header, sizeof header, 0) == sizeof header;
  void* memory = MAP_FAILED;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (read && header.magic == kMagic) memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) throw std::runtime_error(path + ": not a segment of this version");
  memory_ = memory;
  bytes_ = bytes;
  std::uint32_t expected = absent;
  const bool fits = header.ranks == static_cast<std::uint32_t>(size());
  if (fits && mailbox(rank()).state.compare_exchange_strong(expected, here)) return true;
  ::munmap(memory_, bytes_);
  memory_ = nullptr;
  return false;
}

SharedMeeting::~SharedMeeting() {
  if (!memory_) return;
  mailbox(rank()).state.store(std::uncaught_exceptions() > 0 ? failed : ended, std::memory_order_release);
  ::munmap(memory_, bytes_);
}

// ---- A round --------------------------------------------------------------------------------------------------------

SharedMeeting::Counter& SharedMeeting::counter(int peer, Mark mark) const {
  return mark == Mark::posted ? mailbox(peer).posted : mailbox(peer).taken;
}

void SharedMeeting::put(const CollectiveCall& call, std::size_t) {
  mailbox(rank()).call = call;
  mailbox(rank()).posted.set(rounds());
}

void SharedMeeting::take() { mailbox(rank()).taken.set(rounds()); }

Meeting::Progress SharedMeeting::progress_of(int peer, Mark mark) const {
  const bool gone = mailbox(peer).state.load(std::memory_order_acquire) >= ended;  // Before its counter is read.
  return {.gone = gone ? peer : -1, .rounds = counter(peer, mark).value.load(std::memory_order_acquire)};
}

void SharedMeeting::wait_for_change(int peer, Mark mark, std::uint32_t seen) {
  counter(peer, mark).wait_for_change(seen);
}

CollectiveCall SharedMeeting::call_of(int peer) const { return mailbox(peer).call; }

Meeting::Last SharedMeeting::last_of(int peer) const {
  const Mailbox& box = mailbox(peer);
  const auto state = static_cast<State>(box.state.load(std::memory_order_acquire));
  const std::uint32_t posted = box.posted.value.load(std::memory_order_acquire);
  return {.state = state, .posted = posted, .call = posted == 0 ? CollectiveCall{} : box.call};
}

}  // namespace lockstep
