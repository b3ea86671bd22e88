#include "engine/shm_communicator.h"

#include <algorithm>

#include "kernels/require.h"

namespace lockstep {
namespace {

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(Device& device, Meeting& meeting) : device_(device), meeting_(meeting), over_(device) {}
  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }

  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    const CollectiveCall call = begin(stream, CollectiveKind::all_gather, name, bytes);
    exchange(
        call, 1,
        [&](std::byte* outbox, std::size_t first, std::size_t count) {
          stream.copy(outbox, static_cast<const std::byte*>(from) + first, count, CopyKind::device_to_host);
        },
        [&](int peer, std::size_t first, std::size_t count) {
          stream.copy(part(to, peer, bytes) + first, meeting_.outbox_of(peer), count, CopyKind::host_to_device);
        });
    finish(stream, part(to, rank(), bytes), from, bytes);
  }

  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    require(bytes == 0 || to != from, "what is exchanged goes to other memory");
    const CollectiveCall call = begin(stream, CollectiveKind::all_to_all, name, bytes);
    exchange(
        call, static_cast<std::size_t>(size()),
        [&](std::byte* outbox, std::size_t first, std::size_t count) {
          for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank()) continue;
            stream.copy(part(outbox, peer, count), part(from, peer, bytes) + first, count, CopyKind::device_to_host);
          }
        },
        [&](int peer, std::size_t first, std::size_t count) {
          const std::byte* left = part(meeting_.outbox_of(peer), rank(), count);
          stream.copy(part(to, peer, bytes) + first, left, count, CopyKind::host_to_device);
        });
    finish(stream, part(to, rank(), bytes), part(from, rank(), bytes), bytes);
  }

  void meet() override { tell(""); }
  std::vector<std::string> tell(const std::string& words) override {
    require(!device_.capturing() && !device_.in_dry_run(), "ranks meet outside of captures and dry runs");
    return meeting_.tell(ledger_.append(CollectiveKind::meet, {}, 0, ""), words);
  }

 private:
  static std::byte* part(void* memory, int rank, std::size_t bytes) {
    return static_cast<std::byte*>(memory) + static_cast<std::size_t>(rank) * bytes;
  }
  static const std::byte* part(const void* memory, int rank, std::size_t bytes) {
    return static_cast<const std::byte*>(memory) + static_cast<std::size_t>(rank) * bytes;
  }

  CollectiveCall begin(const Stream& stream, CollectiveKind kind, const CollectiveName& name, std::size_t bytes) {
    require(stream.capture_status() == CaptureStatus::none, "no collective over the host in a capture");
    if (last_stream_ >= 0 && last_stream_ != stream.id()) stream.wait(over_);
    last_stream_ = stream.id();
    device_.count(stream, collectives);
    return ledger_.append(kind, name, bytes, stream.name());
  }

  // `parts` lie one behind the other in the outbox, in as many rounds as they need. The host waits for a copy to memory
  // that is not pinned, and reads such memory when it calls for a copy from there.
  template <class Fill, class Take>
  void exchange(const CollectiveCall& call, std::size_t parts, Fill fill, Take take) {
    require(!device_.capturing() && !device_.in_dry_run(), "ranks meet outside of captures and dry runs");
    std::size_t first = 0;
    do {
      const std::size_t count = std::min(Meeting::kOutbox / parts, call.bytes - first);
      std::byte* outbox = meeting_.begin();
      if (count > 0) fill(outbox, first, count);
      meeting_.post(call, parts * count);
      meeting_.await_posts();
      for (int peer = 0; peer < size() && count > 0; ++peer) {
        if (peer != rank()) take(peer, first, count);
      }
      meeting_.end();
      first += count;
    } while (first < call.bytes);
  }

  void finish(const Stream& stream, void* own_to, const void* own_from, std::size_t bytes) {
    if (bytes > 0 && own_to != own_from) stream.copy(own_to, own_from, bytes, CopyKind::device_to_device);
    stream.record(over_);
  }

  Device& device_;
  Meeting& meeting_;
  CollectiveLedger ledger_;
  Event over_;  // The last call is over.
  int last_stream_ = -1;
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(Device& device, Meeting& meeting) {
  return std::make_unique<ShmCommunicator>(device, meeting);
}

}  // namespace lockstep
