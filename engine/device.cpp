#include "engine/device.h"

#include <algorithm>

#include "kernels/require.h"

namespace lockstep {

Device::Device(std::unique_ptr<Backend> backend, Observer* observer, Pressure pressure)
    : backend_(std::move(backend)), observer_(observer), pressure_(std::move(pressure)), delay_state_(pressure_.seed) {
  static Observer silent;
  if (!observer_) observer_ = &silent;
  backend_->set_poison(pressure_.poison_fresh, pressure_.poison_freed);
}

Device::~Device() = default;

void Device::host_writes(const void* memory, std::size_t bytes) {
  observer_->on_host_write(memory, bytes, place);
  backend_->host_acts();
}
void Device::host_reads(const void* memory, std::size_t bytes) {
  observer_->on_host_read(memory, bytes, place);
  backend_->host_acts();
}

std::int64_t Device::most_delay(const char* stream) const {
  std::int64_t most = 0;
  for (const StreamDelay& delay : pressure_.delays) {
    if (delay.stream == stream) most = std::max(most, delay.most);
  }
  return most;
}

Device::RecordOnly::RecordOnly(Device& device, Ledger& ledger) : device_(device) {
  require(!device.record_only_, "one dry run at a time");
  require(!device.capturing_, "no dry run during a capture");
  device.record_only_ = &ledger;
}

Device::RecordOnly::~RecordOnly() { device_.record_only_ = nullptr; }

}  // namespace lockstep
