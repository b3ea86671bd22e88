#include "engine/rendezvous/shared_memory_store.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <exception>
#include <string>
#include <thread>

namespace lockstep {

// A number whose change other processes wait for.
struct SharedMemoryStore::Counter {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> asleep;  // Sleeping processes. One that died asleep stays counted; the
                                      // only cost is a system call in set.
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  // A process that counts itself asleep before the load is woken; one that does so later sees the
  // new number.
  void set(std::uint32_t to) {
    value.store(to);
    if (asleep.load() > 0) wake();
  }
  void wake() { ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
  // Returns when the number is no longer `seen`, or after a short time, so that the caller can
  // check for other changes. It spins first: ranks run alike, so the change often comes sooner than
  // the system could wake this process.
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

struct alignas(64) SharedMemoryStore::Mailbox {
  std::atomic<std::uint32_t> state;
  Counter posted, taken;  // Rounds.
  // The call of the last round posted and the bytes of its outbox; they stay until all have taken
  // them.
  CollectiveCall call;
  std::uint64_t filled;
};

// The part of a letter that is on its way from one rank to another.
struct alignas(64) SharedMemoryStore::Way {
  Counter put, taken;
  std::uint64_t filled;
  std::byte part[kMostOfPart];
};

namespace {

constexpr std::size_t kPage = 4096;
std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

SharedMemoryStore::Mailbox& SharedMemoryStore::mailbox(int rank) const {
  return reinterpret_cast<Mailbox*>(static_cast<std::byte*>(memory_) + kPage)[rank];
}

std::byte* SharedMemoryStore::outbox_at(int rank) const {
  const std::size_t first = kPage + round_up(static_cast<std::size_t>(size()) * sizeof(Mailbox));
  return static_cast<std::byte*>(memory_) + first + static_cast<std::size_t>(rank) * kOutbox;
}

std::span<const std::byte> SharedMemoryStore::posted_by(int peer) const {
  return {outbox_at(peer), std::min<std::size_t>(mailbox(peer).filled, kOutbox)};
}

// ---- Joining ------------------------------------------------------------------------------------

// The system fills the segment with zeros: all ranks are absent, and nothing was posted.
std::size_t SharedMemoryStore::segment_bytes(int ranks) {
  const std::size_t count = ranks;
  return kPage + round_up(count * sizeof(Mailbox)) + count * kOutbox + count * count * sizeof(Way);
}

// Behind the outboxes. Memory that nobody touches is not there.
SharedMemoryStore::Way& SharedMemoryStore::way(int from, int to) const {
  return reinterpret_cast<Way*>(outbox_at(size()))[from * size() + to];
}

bool SharedMemoryStore::put_part(int peer, std::span<const std::byte> part) {
  Way& to = way(rank(), peer);
  const std::uint32_t put = to.put.value.load();
  if (to.taken.value.load() != put) return false;
  std::copy(part.begin(), part.end(), to.part);
  to.filled = part.size();
  to.put.set(put + 1);
  return true;
}

bool SharedMemoryStore::take_part(int peer, std::vector<std::byte>& to) {
  Way& from = way(peer, rank());
  const std::uint32_t put = from.put.value.load();
  if (from.taken.value.load() == put) return false;
  to.insert(to.end(), from.part, from.part + std::min<std::size_t>(from.filled, kMostOfPart));
  from.taken.set(put);
  return true;
}

void SharedMemoryStore::wait_for_part(int peer) {
  Way& from = way(peer, rank());
  from.put.wait_for_change(from.taken.value.load());
}

SharedSegment SharedMemoryStore::create(const SharedPlace& place, int ranks) {
  return SharedSegment(place, ranks, segment_bytes(ranks));
}

SharedMemoryStore::SharedMemoryStore(const SharedPlace& place, int rank, int ranks,
                                     double deadline_s)
    : Store(rank, ranks, deadline_s) {
  const auto join = [this](void* memory) {
    memory_ = memory;
    std::uint32_t expected = absent;
    if (mailbox(this->rank()).state.compare_exchange_strong(expected, here)) return true;
    memory_ = nullptr;
    return false;
  };
  const Clock::time_point end = Clock::now() + deadline();
  while (!open_segment(place, ranks, segment_bytes(ranks), join)) {
    if (Clock::now() >= end) {
      throw CollectiveHang("rank " + std::to_string(rank) + " found no place to join at " +
                           place.path + " " + within());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

SharedMemoryStore::~SharedMemoryStore() {
  if (!memory_) return;
  mailbox(rank()).state.store(std::uncaught_exceptions() > 0 ? failed : ended,
                              std::memory_order_release);
  ::munmap(memory_, segment_bytes(size()));
}

void SharedMemoryStore::tell_lost(const SharedPlace& place, int rank, int ranks) {
  const std::size_t bytes = segment_bytes(ranks);
  open_segment(place, ranks, bytes, [&](void* memory) {
    Mailbox& box = reinterpret_cast<Mailbox*>(static_cast<std::byte*>(memory) + kPage)[rank];
    for (const std::uint32_t before : {absent, here}) {
      std::uint32_t expected = before;
      if (box.state.compare_exchange_strong(expected, lost)) break;
    }
    // Sleepers look again.
    box.posted.wake();
    box.taken.wake();
    ::munmap(memory, bytes);
    return true;
  });
}

// ---- A round ------------------------------------------------------------------------------------

SharedMemoryStore::Counter& SharedMemoryStore::counter(int peer, Mark mark) const {
  return mark == Mark::posted ? mailbox(peer).posted : mailbox(peer).taken;
}

void SharedMemoryStore::put(const CollectiveCall& call, std::size_t filled) {
  mailbox(rank()).call = call;
  mailbox(rank()).filled = filled;
  mailbox(rank()).posted.set(rounds());
}

void SharedMemoryStore::take() { mailbox(rank()).taken.set(rounds()); }

Store::Progress SharedMemoryStore::progress_of(int peer, Mark mark) const {
  // Read before the counter, which is final once the peer has left.
  const bool gone = mailbox(peer).state.load(std::memory_order_acquire) >= ended;
  return {.gone = gone ? peer : -1,
          .rounds = counter(peer, mark).value.load(std::memory_order_acquire)};
}

void SharedMemoryStore::wait_for_change(int peer, Mark mark, std::uint32_t seen) {
  counter(peer, mark).wait_for_change(seen);
}

CollectiveCall SharedMemoryStore::call_of(int peer) const { return mailbox(peer).call; }

Store::Last SharedMemoryStore::last_of(int peer) const {
  const Mailbox& box = mailbox(peer);
  const auto state = static_cast<State>(box.state.load(std::memory_order_acquire));
  const std::uint32_t posted = box.posted.value.load(std::memory_order_acquire);
  return {.state = state, .posted = posted, .call = posted == 0 ? CollectiveCall{} : box.call};
}

}  // namespace lockstep
