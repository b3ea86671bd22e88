#include "engine/cuda/nccl.h"

#include <cstring>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/call.h"
#include "engine/cuda/call_events.h"
#include "engine/cuda/nccl_library.h"
#include "engine/cuda/nccl_windows.h"
#include "engine/cuda/peer_copies.h"

namespace lockstep {
namespace {

class NcclRanks final : public BackendCommunicator {
 public:
  NcclRanks(const NcclUniqueId& id, int rank, int size, NcclWindows::Takes takes) : size_(size) {
    nccl_call(nccl_library().comm_init_rank(&comm_, size, id, rank), "ncclCommInitRank");
    windows_.emplace(comm_, size, std::move(takes));
  }
  // Not ncclCommDestroy, which waits for ranks that may be gone.
  ~NcclRanks() override {
    windows_->close();
    nccl_library().comm_abort(comm_);
  }

  void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
    comes(stream, true);
    nccl_call(nccl_library().all_gather(from, to, bytes, kNcclInt8, comm_, cuda(stream)),
              "ncclAllGather");
    made(stream);
  }
  // Sends and receives have kernels always.
  void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
    comes(stream, false);
    if (windows_->hold(from) && windows_->hold(to)) {
      nccl_call(nccl_library().all_to_all(from, to, bytes, kNcclInt8, comm_, cuda(stream)),
                "ncclAlltoAll");
      return made(stream);
    }
    nccl_call(nccl_library().group_start(), "ncclGroupStart");
    int result = kNcclSuccess;
    for (int peer = 0; peer < size_ && result == kNcclSuccess; ++peer) {
      const std::size_t first = static_cast<std::size_t>(peer) * bytes;
      result = nccl_library().send(static_cast<const std::byte*>(from) + first, bytes, kNcclInt8,
                                   peer, comm_, cuda(stream));
      if (result != kNcclSuccess) break;
      result = nccl_library().receive(static_cast<std::byte*>(to) + first, bytes, kNcclInt8, peer,
                                      comm_, cuda(stream));
    }
    const int ended = nccl_library().group_end();  // Even so: else the thread stays in the group.
    nccl_call(result, "ncclSend or ncclRecv");
    nccl_call(ended, "ncclGroupEnd");
    made(stream);
  }
  void reduce_scatter(BackendStream* stream, float* to, const float* from,
                      std::size_t bytes) override {
    const std::size_t count = bytes / sizeof(float);
    comes(stream, false);
    nccl_call(
        nccl_library().reduce_scatter(from, to, count, kNcclFloat32, kNcclSum, comm_, cuda(stream)),
        "ncclReduceScatter");
    made(stream);
  }
  void all_reduce(BackendStream* stream, float* data, std::size_t bytes) override {
    const std::size_t count = bytes / sizeof(float);
    comes(stream, false);
    nccl_call(
        nccl_library().all_reduce(data, data, count, kNcclFloat32, kNcclSum, comm_, cuda(stream)),
        "ncclAllReduce");
    made(stream);
  }

  void send(BackendStream* stream, const void* from, std::size_t bytes, int to) override {
    comes(stream, false);
    nccl_call(nccl_library().send(from, bytes, kNcclInt8, to, comm_, cuda(stream)), "ncclSend");
    made(stream);
  }
  void receive(BackendStream* stream, void* to, std::size_t bytes, int from) override {
    comes(stream, false);
    nccl_call(nccl_library().receive(to, bytes, kNcclInt8, from, comm_, cuda(stream)), "ncclRecv");
    made(stream);
  }

  void begin_group() override {
    nccl_call(nccl_library().group_start(), "ncclGroupStart");
    in_group_ = true;
    group_stream_ = nullptr;
  }
  void end_group() override {
    in_group_ = false;
    nccl_call(nccl_library().group_end(), "ncclGroupEnd");
    if (group_stream_ != nullptr) made(group_stream_);
  }

  std::string reach() const override { return windows_->reach(); }
  bool has_room(std::size_t bytes) const override { return windows_->have_room(bytes); }
  void reserve(std::size_t bytes) override { windows_->reserve(bytes); }
  void* allocate(std::size_t bytes) override { return windows_->allocate(bytes); }
  void release(void* memory) noexcept override { windows_->release(memory); }

  void launched(BackendStream* stream) override { last_.record(stream); }

  void measure(bool on) override { measuring_ = on; }
  Spent take_spent() override { return {.gathers = gathers_.take(), .others = others_.take()}; }

  bool busy() override { return last_.busy(); }
  std::string failure() override {
    int error = kNcclSuccess;
    const int result = nccl_library().comm_get_async_error(comm_, &error);
    if (result == kNcclSuccess && (error == kNcclSuccess || error == kNcclInProgress)) return "";
    return std::string("NCCL: ") +
           nccl_library().error_string(result != kNcclSuccess ? result : error);
  }

 private:
  static bool captures(BackendStream* stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cuda_call(cudaStreamIsCapturing(cuda(stream), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
  // A group comes with its first call, and is made when it ends. What is captured is neither
  // measured nor looked at by the watchdog: its launch is.
  void comes(BackendStream* stream, bool gather) {
    if (measuring_ && group_stream_ == nullptr && !captures(stream)) {
      measures_ = gather ? &gathers_ : &others_;
      measures_->begin(stream);
    }
    if (in_group_) group_stream_ = stream;
  }
  void made(BackendStream* stream) {
    if (in_group_) return;
    group_stream_ = nullptr;
    if (captures(stream)) return;
    if (measuring_) measures_->end(stream);
    last_.record(stream);
  }

  int size_;
  NcclComm comm_ = nullptr;
  std::optional<NcclWindows> windows_;  // For the communicator, once it exists.
  bool measuring_ = false;
  EventStopwatch gathers_, others_;
  EventStopwatch* measures_ = nullptr;  // The call under way; null before the first.
  bool in_group_ = false;
  BackendStream* group_stream_ = nullptr;  // For the group under way, once it has a call.
  LastCall last_;
};

}  // namespace

CommunicatorId new_nccl_id() {
  NcclUniqueId id{};
  nccl_call(nccl_library().get_unique_id(&id), "ncclGetUniqueId");
  CommunicatorId bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

BackendCommunicator* join_nccl(const CommunicatorId& bytes, int rank, int size,
                               std::function<void(std::int64_t)> takes) {
  if (bytes.empty()) return std::make_unique<PeerCopies>().release();
  NcclUniqueId id{};
  if (bytes.size() != sizeof id)
    cuda_raise("ncclInvalidArgument", "join_nccl", std::source_location::current());
  std::memcpy(&id, bytes.data(), sizeof id);
  return std::make_unique<NcclRanks>(id, rank, size, std::move(takes)).release();
}

}  // namespace lockstep
