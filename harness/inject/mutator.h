// Plants a fault at the device, or counts the calls at which one could be planted.
#pragma once

#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "harness/inject/device_fault.h"
#include "harness/inject/fault_injector.h"
#include "kernels/core/at.h"

namespace lockstep {

class DeviceMutator : public FaultInjector {
 public:
  enum class Mode : std::uint8_t {
    strike,           // The fault changes its call.
    mark,             // The call stays as it is, and is marked.
    strike_and_mark,  // What the fault makes of the call is marked.
  };
  // The part of the step that a marked call has.
  static constexpr const char* kMark = "struck";

  // Without a fault it only counts. `pattern` names the layers of sites.
  explicit DeviceMutator(std::string pattern, std::optional<DeviceFault> fault = std::nullopt,
                         Mode mode = Mode::strike)
      : pattern_(std::move(pattern)), fault_(std::move(fault)), mode_(mode) {}

  using Sites = std::map<std::string, std::int64_t>;
  // The number of calls of each site that an operator could change.
  const Sites& sites(DeviceOperator op) const { return at(sites_, op); }
  std::int64_t triggered() const override { return triggered_; }  // 0 or 1.
  // The last launch of each graph, at which a buffer could have moved, but no later replay would
  // show the old address.
  std::set<std::pair<std::string, std::int64_t>> last_launches() const;
  // The copy or fill that was marked wrote what was there.
  bool changed_nothing() const { return changed_nothing_; }

  void attached(Device& device) override { device_ = &device; }
  void created_stream(int stream, const char* name) override { streams_.emplace_back(name); }
  std::vector<IssuedCall> instead_of(const IssuedCall& call, bool dry_run) override;
  int launches(int stream, int graph, const Ledger& ledger, const StepLocation& place) override;
  bool synchronizes(int stream, int event) override;
  void* shared_memory(std::size_t bytes, bool pinned) override;
  void allocated(void* memory, std::size_t bytes, bool pinned) override;
  bool releases(void* memory) override;

 private:
  struct Block {
    std::byte* base;
    std::size_t bytes;
    bool pinned;
    bool freed_early = false;
    int more_owners = 0;            // Buffers that share it.
    std::byte* moved_to = nullptr;  // Where all calls but those in graphs find it now.
  };

  // Counts the call, and returns whether it is the one to change.
  bool strikes(DeviceOperator op, const std::string& site);
  std::vector<IssuedCall> mutated(IssuedCall call);
  void mark(IssuedCall& call);
  std::string site_of(const IssuedCall& call) const;
  std::string where(const StepLocation& place) const;
  bool harness_looks() const;  // Calls of the harness are not the engine's.
  int other_stream(int stream) const { return (stream + 1) % static_cast<int>(streams_.size()); }

  Block* block_at(const void* address);
  void forget(const std::byte* base);
  Block* other_block(const Submission& op, const OperandBytes& operand);
  IssuedCall moved(const IssuedCall& call);
  std::vector<IssuedCall> mutated_op(IssuedCall call, const std::string& site);
  bool free_operand(const IssuedCall& call, const std::string& site);
  void move_block(int stream, const Ledger& ledger);

  std::string pattern_;
  std::optional<DeviceFault> fault_;
  Mode mode_;
  Device* device_ = nullptr;
  std::array<Sites, kDeviceOperators.size()> sites_;
  std::int64_t triggered_ = 0;
  std::vector<std::string> streams_;
  std::map<int, int> recorded_;  // Stream of the latest record, by event.
  std::list<Block> blocks_;      // The ones that live, in the order of allocation.
  std::map<const std::byte*, std::list<Block>::iterator> by_address_;
  bool moved_any_ = false;
  std::map<int, int> launched_;                                     // Launches so far, by graph.
  std::map<int, std::pair<std::string, std::int64_t>> last_moves_;  // By graph.
  bool changed_nothing_ = false;
  bool busy_ = false;  // The mutator itself calls the device.
};

}  // namespace lockstep
