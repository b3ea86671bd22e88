// A store for processes on one machine, in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/rendezvous/shared_segment.h"
#include "engine/rendezvous/store.h"

namespace lockstep {

class SharedMemoryStore final : public Store {
 public:
  // Rank 0, or the process that starts the ranks, makes the segment and keeps it while they run.
  [[nodiscard]] static SharedSegment create(const SharedPlace& place, int ranks);

  // Joins as `rank`, once a process, and waits for the segment if it is not there yet. A process
  // that finds its rank taken has found an older segment, and waits for a fresh one.
  SharedMemoryStore(const SharedPlace& place, int rank, int ranks, double deadline_s);
  ~SharedMemoryStore() override;

  // Tells the others that a rank which has not left by itself is dead. Called by the process that
  // made the segment, which sees its children end.
  static void tell_lost(const SharedPlace& place, int rank, int ranks);

  std::span<const std::byte> posted_by(int peer) const override;

 private:
  struct Mailbox;
  struct Counter;
  struct Way;

  static std::size_t segment_bytes(int ranks);
  Mailbox& mailbox(int rank) const;
  Counter& counter(int peer, Mark mark) const;

  Way& way(int from, int to) const;
  bool put_part(int peer, std::span<const std::byte> part) override;
  bool take_part(int peer, std::vector<std::byte>& to) override;
  void wait_for_part(int peer) override;

  std::byte* outbox_at(int rank) const;
  std::byte* outbox() override { return outbox_at(rank()); }
  void put(const CollectiveCall& call, std::size_t filled) override;
  void take() override;
  Progress progress_of(int peer, Mark mark) const override;
  void wait_for_change(int peer, Mark mark, std::uint32_t seen) override;
  CollectiveCall call_of(int peer) const override;
  Last last_of(int peer) const override;

  void* memory_ = nullptr;
};

}  // namespace lockstep
