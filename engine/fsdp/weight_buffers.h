// Gathers the weights of units before the passes that read them, ahead of time where a slot is
// free, and lets go of them behind. A slot is FREE, then GATHERING on the stream "gather", READY
// when compute has waited for that, and FREE again behind the last pass that reads it; the next
// gather into it waits for that pass.
//
// Weights that stay whole (those of embedding and head; all, unless parameters are sharded) are
// refreshed after the optimizer and never let go.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/fsdp/buffer_plan.h"
#include "engine/parameters/parameters.h"

namespace lockstep {

class WeightBuffers {
 public:
  WeightBuffers(const Stream& compute, Communicator& communicator, const Scenario::Fsdp& fsdp,
                const ShardLayout& layout, Parameters& parameters);
  ~WeightBuffers();  // Waits for what is under way: the memory of other ranks goes when their
                     // trainers do.

  // Passes are about to run that use units in this order. What they use first may be gathered
  // before they are known: passes begin with a forward one.
  void prefetch();
  void begin(std::vector<int> uses);
  void enter(int unit);  // Compute may read its weights,
  void leave(int unit);  // and has read them.
  void end() const;      // Every use has come and gone.

  const Stream& stream() const { return stream_; }

  // The shard of a unit has changed: gathers what stays whole.
  void refresh(int unit);
  // All have, not by a step: nor is what was gathered ahead of use any more.
  void refresh();
  bool is_resident(int unit) const;
  // Outside of graphs: those that nobody began before the unit was entered.
  std::int64_t late_gathers() const { return late_gathers_; }
  // Compute waits for what was gathered, so that no event of one side of a capture is waited for on
  // the other.
  void drain();

  // Appends the addresses that a graph may hold: the slots, and where the parameters of units that
  // never move lie in them.
  void append_addresses(std::vector<const void*>& table) const;

 private:
  enum class State : std::uint8_t { free, gathering, ready };
  struct Slot {
    explicit Slot(Device& device)
        : gathered(device, "weights gathered"), released(device, "weights released") {}
    std::byte* memory = nullptr;
    State state = State::free;
    int unit = -1;
    bool read = false;  // Since the passes began; `released` is behind it.
    Event gathered, released;
  };
  void fork();
  Slot& slot(int index) { return *slots_[static_cast<std::size_t>(index)]; }
  const std::vector<int>& choices(int unit) const {
    return plan_.choices[static_cast<std::size_t>(unit)];
  }
  Slot* holding(int unit);
  void place(int unit, const Slot& slot);
  // What this rank passes to the collective that gathers a bucket.
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
  Communicator& communicator_;
  const ShardLayout& layout_;
  Parameters& parameters_;
  const Sharding strategy_;
  const std::size_t prefetch_;
  const BufferPlan plan_;
  TensorPool pool_;
  Stream stream_;
  Event fork_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<int> uses_;
  std::size_t next_ = 0;  // The use that is under way or comes next.
  std::int64_t late_gathers_ = 0;
};

}  // namespace lockstep
