#include "harness/bench/device_bytes.h"

#include <sys/mman.h>

#include "engine/device/call_interceptor.h"
#include "engine/parameters/shard_layout.h"
#include "engine/train/trainer.h"
#include "harness/base/errors.h"
#include "harness/case/schedules.h"
#include "harness/run/device_choice.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Makes no call, and gives addresses that nothing may touch instead of memory.
class Addresses final : public CallInterceptor {
 public:
  Addresses()
      : base_(::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0)) {
    if (base_ == MAP_FAILED) throw WorldError("no addresses for the memory of a device");
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() override { ::munmap(base_, kBytes); }

  std::vector<IssuedCall> instead_of(const IssuedCall&, bool) override { return {}; }
  bool synchronizes(int, int) override { return false; }
  void* shared_memory(std::size_t bytes, bool pinned) override {
    if (pinned) return nullptr;
    std::byte* const memory = static_cast<std::byte*>(base_) + given_;
    given_ += (bytes + kAligned - 1) / kAligned * kAligned;
    if (given_ > kBytes) throw WorldError("a device with more memory than there are addresses");
    this->bytes += static_cast<std::int64_t>(bytes);
    return memory;
  }
  bool releases(void* memory) override {
    const auto* const place = static_cast<std::byte*>(memory);
    const auto* const first = static_cast<std::byte*>(base_);
    return place < first || place >= first + kBytes;
  }

  std::int64_t bytes = 0;  // Of all buffers on the device.

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 44, kAligned = 256;
  void* const base_;
  std::size_t given_ = 0;
};

}  // namespace

std::int64_t device_bytes(const Scenario& scenario) {
  Addresses addresses;
  const auto data = open_data(scenario);
  Device device(open_backend("sim", sim_options(scenario, scenario.checker.schedule.seed)), nullptr,
                {}, &addresses);
  const Trainer trainer(device, scenario, *data, {.dry_run_ledger = false});
  return addresses.bytes;
}

std::int64_t gathered_bytes(const Scenario& scenario) {
  if (!with_reduction(scenario) || scenario.fsdp.strategy == Sharding::no_shard) return 0;
  const ParameterList list(scenario.model);
  const ShardLayout layout(list, scenario, static_cast<int>(scenario.parallel.data),
                           stores_bf16(scenario));
  std::int64_t bytes = 0;
  for (const Bucket& bucket : layout.buckets) bytes += layout.full(bucket) * bucket.element_bytes();
  return bytes;
}

}  // namespace lockstep
