// Gathers the weights of units before the passes that read them, prefetching where a slot is free,
// and releases them afterwards. The states of a slot are FREE, GATHERING on the stream "gather",
// READY once compute has waited for the gather, and FREE again after the last pass that reads it.
// The next gather into the slot waits for that pass.
//
// Resident weights (those of embedding and head, or all weights if parameters are not sharded) are
// gathered again after the optimizer and are never released.
#pragma once

#include <memory>
#include <vector>

#include "engine/fsdp/buffer_plan.h"
#include "engine/fsdp/shard_communicators.h"
#include "engine/parameters/parameters.h"
#include "kernels/core/at.h"

namespace lockstep {

class WeightBuffers {
 public:
  WeightBuffers(const Stream& compute, const ShardCommunicators& communicators,
                const Scenario::Fsdp& fsdp, const ShardLayout& layout, Parameters& parameters);
  ~WeightBuffers();  // Waits for gathers that are under way, because the memory of other ranks is
                     // freed with their trainers.

  // Announces passes that use units in this order. The units of the first chunk, which are the
  // first `units`, may be gathered before the passes are known, because every sequence begins with
  // a forward pass through it.
  void prefetch(int units);
  void begin(std::vector<int> uses);
  void await(int unit);  // Compute may read the weights of a unit that is resident.
  void order_after(const Stream& stream, int unit);  // The same for another stream.
  void enter(int unit);                              // Compute may read the weights of the unit.
  void leave(int unit);                              // Compute has read them.
  void end() const;                                  // Every announced use is over.

  const Stream& stream() const { return stream_; }

  // The shard of a unit has changed: gathers the unit again if it is resident.
  void refresh(int unit);
  // All shards have changed outside of a step, so prefetched weights are stale too.
  void refresh();
  bool is_resident(int unit) const;
  // Called outside of graphs: gathers that nothing had begun before the unit was entered.
  std::int64_t late_gathers() const { return late_gathers_; }
  // Compute waits for prefetched weights, so that no event of one side of a capture is waited for
  // on the other side.
  void drain();

  // Around passes that come between two of those that were announced, or before them. Units that
  // have a slot meanwhile lose it, and have it again afterwards: the caller keeps the memory that
  // the first function returns and has compute write it again before it calls the second.
  std::vector<MemoryRange> set_aside();
  void put_back();
  std::int64_t most_set_aside() const;  // In bytes.

  // Appends the addresses that a graph may contain: the slots, and the addresses of parameters of
  // units that always have the same slot.
  void append_addresses(std::vector<const void*>& table) const;

 private:
  enum class State : std::uint8_t { free, gathering, ready };
  struct Slot {
    explicit Slot(Device& device)
        : gathered(device, "weights gathered"), released(device, "weights released") {}
    std::byte* memory = nullptr;
    State state = State::free;
    int unit = -1;
    bool read = false;  // Read since the passes began; `released` is recorded after the read.
    Event gathered, released;
  };
  void fork();
  void await_no_more();
  void await_no_more(const Communicator& communicator);
  Slot& slot(int index) { return *at(slots_, index); }
  const std::vector<int>& choices(int unit) const { return at(plan_.choices, unit); }
  Slot* holding(int unit);
  void place(int unit, const Slot& slot);
  // The part that this rank passes to the collective that gathers a bucket.
  struct Shard {
    int bucket;
    void* to;
    const void* from;
    std::size_t bytes;
  };
  int free_slot(int unit);
  bool gather(int unit);  // False if no slot is free.
  std::vector<Shard> shards(int unit, const Slot& to) const;
  void exchange(int unit, Slot& slot, const Slot& to);  // `to` is `slot`, but for a fault.
  void gather_ahead(std::size_t first, std::size_t end);
  void wait(Slot& slot);

  const Stream& compute_;
  const ShardCommunicators communicators_;
  const ShardLayout& layout_;
  Parameters& parameters_;
  const Sharding strategy_;
  const std::size_t prefetch_;
  const BufferPlan plan_;
  TensorPool pool_;
  Stream stream_;
  Event fork_;
  std::vector<std::unique_ptr<Slot>> slots_;
  // A slot's unit, or the sequence of uses, while other passes run.
  struct Held {
    State state;
    int unit;
    bool read;
  };
  struct SetAside {
    std::vector<Held> slots;
    std::vector<int> uses;
    std::size_t next = 0;
  };
  bool is_released(int slot) const;
  void append_weights(const Slot& slot, std::vector<MemoryRange>& ranges) const;
  SetAside set_aside_;
  std::vector<int> uses_;
  std::size_t next_ = 0;  // Index of the current or next use.
  std::int64_t late_gathers_ = 0;
};

}  // namespace lockstep
