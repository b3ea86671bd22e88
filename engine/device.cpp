#include "engine/device.h"

#include "kernels/require.h"

namespace lockstep {

Device::Device(std::unique_ptr<Backend> backend, Observer* observer)
    : backend_(std::move(backend)), observer_(observer) {
  static Observer silent;
  if (!observer_) observer_ = &silent;
}

Device::~Device() = default;

void Device::host_writes(const void* memory, std::size_t bytes) { observer_->on_host_write(memory, bytes, place); }
void Device::host_reads(const void* memory, std::size_t bytes) { observer_->on_host_read(memory, bytes, place); }

Device::RecordOnly::RecordOnly(Device& device, Ledger& ledger) : device_(device) {
  require(!device.record_only_, "one dry run at a time");
  require(!device.capturing_, "no dry run during a capture");
  device.record_only_ = &ledger;
}

Device::RecordOnly::~RecordOnly() { device_.record_only_ = nullptr; }

}  // namespace lockstep
