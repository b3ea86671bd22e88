#include "engine/segment.h"

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

#include "kernels/require.h"

namespace lockstep {
namespace {

enum State : std::uint32_t { absent, here, ended, failed };

constexpr std::uint32_t kMagic = 0x4c53'7367;  // Of this layout.

struct Header {
  std::uint32_t magic, ranks;
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

std::string seconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

// A number that other processes wait for.
struct Segment::Counter {
  std::atomic<std::uint32_t> value;
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  void set(std::uint32_t to) {
    value.store(to, std::memory_order_release);
    ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // Returns when it is not `seen` any more, or soon: what else can happen has to be looked at too.
  void wait_for_change(std::uint32_t seen) {
    const timespec soon{0, 20'000'000};
    ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &soon, nullptr, 0);
  }
};

struct alignas(64) Segment::Mailbox {
  std::atomic<std::uint32_t> state;
  Counter posted, taken;  // Rounds.
  CollectiveCall call;    // Of the last round posted, which stays until all have taken.
};

namespace {

constexpr std::size_t kPage = 4096;
std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Segment::Mailbox& Segment::mailbox(int rank) const {
  return reinterpret_cast<Mailbox*>(static_cast<std::byte*>(memory_) + kPage)[rank];
}

const std::byte* Segment::outbox_of(int peer) const {
  const std::size_t first = kPage + round_up(static_cast<std::size_t>(ranks_) * sizeof(Mailbox));
  return static_cast<const std::byte*>(memory_) + first + static_cast<std::size_t>(peer) * kOutbox;
}

// ---- To be there ----------------------------------------------------------------------------------------------------

// Filled with zeros by the system: everybody is absent, and nothing was posted.
void Segment::create(const std::string& path, int ranks) {
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

Segment::Segment(const std::string& path, int rank, int ranks, double deadline_s)
    : rank_(rank),
      ranks_(ranks),
      deadline_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline_s))) {
  require(rank >= 0 && rank < ranks, "a rank is one of the ranks");
  const Clock::time_point deadline = Clock::now() + deadline_;
  while (!open(path)) {
    if (Clock::now() >= deadline) {
      throw CollectiveHang("rank " + std::to_string(rank) + " found no place to join at " + path + " within " +
                           seconds(deadline_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// False if there is none yet, or an older one.
bool Segment::open(const std::string& path) {
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
  const bool fits = header.ranks == static_cast<std::uint32_t>(ranks_);
  if (fits && mailbox(rank_).state.compare_exchange_strong(expected, here)) return true;
  ::munmap(memory_, bytes_);
  memory_ = nullptr;
  return false;
}

Segment::~Segment() {
  if (!memory_) return;
  mailbox(rank_).state.store(std::uncaught_exceptions() > 0 ? failed : ended, std::memory_order_release);
  ::munmap(memory_, bytes_);
}

// ---- A round --------------------------------------------------------------------------------------------------------

std::byte* Segment::begin() {
  if (meet_here) meet_here();
  await(&Mailbox::taken, rounds_, call_);
  return const_cast<std::byte*>(outbox_of(rank_));
}

void Segment::post(const CollectiveCall& call) {
  call_ = call;
  mailbox(rank_).call = call;
  mailbox(rank_).posted.set(++rounds_);
}

void Segment::await_posts() {
  if (meet_here) meet_here();
  await(&Mailbox::posted, rounds_, call_);
  for (int peer = 0; peer < ranks_; ++peer) {
    require_same_call(rank_, call_, peer, mailbox(peer).call);
  }
}

void Segment::end() { mailbox(rank_).taken.set(rounds_); }

std::vector<std::string> Segment::tell(const CollectiveCall& call, const std::string& words) {
  constexpr std::size_t kMost = kOutbox - sizeof(std::size_t);
  std::vector<std::string> said(static_cast<std::size_t>(ranks_));
  std::size_t longest = 0, first = 0;
  do {
    std::byte* outbox = begin();
    const std::size_t length = words.size(), count = first < length ? std::min(kMost, length - first) : 0;
    std::memcpy(outbox, &length, sizeof length);
    std::memcpy(outbox + sizeof length, words.data() + std::min(first, length), count);
    post(call);
    await_posts();
    for (int peer = 0; peer < ranks_; ++peer) {
      std::string& of_peer = said[static_cast<std::size_t>(peer)];
      std::size_t theirs = 0;
      std::memcpy(&theirs, outbox_of(peer), sizeof theirs);
      longest = std::max(longest, theirs);
      const char* text = reinterpret_cast<const char*>(outbox_of(peer) + sizeof theirs);
      of_peer.append(text, std::min(kMost, theirs - of_peer.size()));
    }
    end();
    first += kMost;
  } while (first < longest);
  return said;
}

void Segment::await(Counter Mailbox::*counter, std::uint32_t value, const CollectiveCall& call) {
  const Clock::time_point deadline = Clock::now() + deadline_;
  for (int peer = 0; peer < ranks_; ++peer) {
    for (;;) {
      const bool gone = mailbox(peer).state.load(std::memory_order_acquire) >= ended;  // Before its counter is read.
      const std::uint32_t seen = (mailbox(peer).*counter).value.load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(seen - value) >= 0) break;
      const auto missing = [&] { return "rank " + std::to_string(peer); };
      if (gone) throw CollectiveHang(missing() + " has left: " + report(call));
      if (Clock::now() >= deadline) {
        throw CollectiveHang(missing() + " did not come within " + seconds(deadline_) + ": " + report(call));
      }
      (mailbox(peer).*counter).wait_for_change(seen);
    }
  }
}

// What the others last posted is read while they may go on: it says where they were.
std::string Segment::report(const CollectiveCall& call) const {
  std::string said;
  for (int peer = 0; peer < ranks_; ++peer) {
    const Mailbox& box = mailbox(peer);
    const std::uint32_t state = box.state.load(std::memory_order_acquire);
    const std::uint32_t posted = box.posted.value.load(std::memory_order_acquire);
    const CollectiveCall last = peer == rank_ ? call : posted == 0 ? CollectiveCall{} : box.call;
    const bool waits = peer == rank_ || (state == here && posted == rounds_);
    said += (peer > 0 ? "; rank " : "rank ") + std::to_string(peer);
    if (state == absent) {
      said += " never came";
    } else if (waits) {
      said += " waits in " + text(last);
    } else {
      said += (state == ended    ? " has ended after "
               : state == failed ? " has failed after "
                                 : " was last in ") +
              text(last);
    }
  }
  return said;
}

}  // namespace lockstep
