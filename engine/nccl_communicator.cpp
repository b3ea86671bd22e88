#include "engine/nccl_communicator.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

#include "engine/backend_communicator.h"
#include "kernels/require.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHang = 4;  // Exit status.

// Looks whether the calls end. A host that waits for a stream cannot report, so this thread does, and ends the process.
class Watchdog {
 public:
  Watchdog(Backend& backend, BackendCommunicator& ranks, const Segment& segment)
      : backend_(backend), ranks_(ranks), segment_(segment), thread_([this](std::stop_token stop) { watch(stop); }) {}

  void launched(const CollectiveCall& call) {
    const std::lock_guard lock(mutex_);
    last_ = call;
    since_ = Clock::now();
  }

 private:
  void watch(const std::stop_token& stop) {
    backend_.enter_thread();
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const std::string failure = ranks_.failure();
      const std::lock_guard lock(mutex_);
      if (!failure.empty()) end(failure);
      if (!ranks_.busy()) since_ = Clock::now();
      if (Clock::now() - since_ > segment_.deadline()) end("a collective is not done within the deadline");
    }
  }
  [[noreturn]] void end(const std::string& why) const {
    const std::string said =
        "lockstep: rank " + std::to_string(segment_.rank()) + ": " + why + ": " + segment_.report(last_) + "\n";
    std::fputs(said.c_str(), stderr);
    std::fflush(stderr);
    ::_exit(kHang);  // Nothing that the device holds can be trusted; the library's kernels end with the process.
  }

  Backend& backend_;
  BackendCommunicator& ranks_;
  const Segment& segment_;
  std::mutex mutex_;
  CollectiveCall last_;
  Clock::time_point since_ = Clock::now();
  std::jthread thread_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Device& device, Segment& segment)
      : device_(device),
        segment_(segment),
        ranks_(join(device, segment, ledger_)),
        over_(device),
        watchdog_(device.backend(), *ranks_, segment) {}
  int rank() const override { return segment_.rank(); }
  int size() const override { return segment_.size(); }

  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    agree(stream, CollectiveKind::all_gather, name, bytes);
    if (bytes > 0) stream.all_gather(*ranks_, rank(), size(), to, from, bytes);
    stream.record(over_);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    require(bytes == 0 || to != from, "what is exchanged goes to other memory");
    agree(stream, CollectiveKind::all_to_all, name, bytes);
    if (bytes > 0) stream.all_to_all(*ranks_, size(), to, from, bytes);
    stream.record(over_);
  }
  void meet() override { tell(""); }
  std::vector<std::string> tell(const std::string& words) override {
    require(!device_.capturing() && !device_.in_dry_run(), "ranks meet outside of captures and dry runs");
    return segment_.tell(ledger_.append(CollectiveKind::meet, {}, 0, ""), words);
  }

 private:
  // Rank 0 tells the others its id.
  static std::unique_ptr<BackendCommunicator> join(Device& device, Segment& segment, CollectiveLedger& ledger) {
    Backend& backend = device.backend();
    std::string id;
    if (segment.rank() == 0) {
      for (const std::byte byte : backend.new_communicator_id()) id += static_cast<char>(byte);
    }
    const std::string told = segment.tell(ledger.append(CollectiveKind::meet, {}, 0, ""), id).front();
    CommunicatorId bytes;
    for (const char byte : told) bytes.push_back(static_cast<std::byte>(byte));
    return std::unique_ptr<BackendCommunicator>(backend.join_communicator(bytes, segment.rank(), segment.size()));
  }

  // All hosts are about to make the same call: else none makes it.
  void agree(const Stream& stream, CollectiveKind kind, const CollectiveName& name, std::size_t bytes) {
    require(stream.capture_status() == CaptureStatus::none, "no collective of several processes in a capture");
    require(!device_.capturing() && !device_.in_dry_run(), "ranks meet outside of captures and dry runs");
    if (last_stream_ >= 0 && last_stream_ != stream.id()) stream.wait(over_);
    last_stream_ = stream.id();
    device_.count(stream, collectives);
    const CollectiveCall& call = ledger_.append(kind, name, bytes, stream.name());
    segment_.begin();
    segment_.post(call);
    segment_.await_posts();
    segment_.end();
    watchdog_.launched(call);
  }

  Device& device_;
  Segment& segment_;
  CollectiveLedger ledger_;
  std::unique_ptr<BackendCommunicator> ranks_;
  Event over_;  // The last call is over.
  int last_stream_ = -1;
  Watchdog watchdog_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, Segment& segment) {
  return std::make_unique<NcclCommunicator>(device, segment);
}

}  // namespace lockstep
