#include "engine/cuda/nccl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
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

// Returns the asynchronous error, or that of asking for it.
int error_of(NcclComm comm) {
  int error = kNcclSuccess;
  const int result = nccl_library().comm_get_async_error(comm, &error);
  return result != kNcclSuccess ? result : error;
}

// NCCL chooses the order of its sums by these variables, when it makes a communicator.
std::string order_of_sums() {
  std::string variables;
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO"}) {
    const char* const value = std::getenv(name);
    variables += std::string(value == nullptr ? "" : value) + ";";
  }
  return variables;
}

int current_gpu() {
  int index = 0;
  cuda_call(cudaGetDevice(&index), "cudaGetDevice");
  return index;
}

// A communicator of one GPU, made for the ranks that share the id.
struct Joined {
  CommunicatorId id;
  int rank, size;
  NcclComm comm;
  int gpu;
  std::string order_of_sums;
};

// The communicators that no run uses, the oldest first. They are never ended: when the process
// ends, the library may be gone before them.
constexpr std::size_t kMostSpares = 16;  // Each has some tens of MB of device memory.
std::vector<Joined>& spares_of(int gpu) {
  static auto& all = *new std::map<int, std::vector<Joined>>;
  std::vector<Joined>& spares = all[gpu];
  spares.reserve(kMostSpares);
  return spares;
}

// Takes the communicator from the spares, or joins with the other ranks.
Joined joined_with(const CommunicatorId& id, int rank, int size) {
  const int gpu = current_gpu();
  std::vector<Joined>& spares = spares_of(gpu);
  const auto spare = std::ranges::find_if(spares, [&](const Joined& one) {
    return one.id == id && one.rank == rank && one.size == size;
  });
  if (spare != spares.end()) {
    Joined taken = std::move(*spare);
    spares.erase(spare);
    return taken;
  }
  NcclUniqueId unique{};
  if (id.size() != sizeof unique)
    cuda_raise("ncclInvalidArgument", "join_nccl", std::source_location::current());
  std::memcpy(&unique, id.data(), sizeof unique);
  NcclComm comm = nullptr;
  nccl_call(nccl_library().comm_init_rank(&comm, size, unique, rank), "ncclCommInitRank");
  return {id, rank, size, comm, gpu, order_of_sums()};
}

class NcclRanks final : public BackendCommunicator {
 public:
  NcclRanks(const CommunicatorId& id, int rank, int size, NcclWindows::Takes takes)
      : joined_(joined_with(id, rank, size)),
        comm_(joined_.comm),
        windows_(comm_, size, std::move(takes)) {}
  // A communicator that failed, or whose calls may not be done, is not kept. ncclCommDestroy would
  // wait for ranks that may be gone.
  ~NcclRanks() override {
    windows_.close();
    if (!keeps_ || in_group_ || busy() || error_of(comm_) != kNcclSuccess) {
      nccl_library().comm_abort(comm_);
      return;
    }
    std::vector<Joined>& spares = spares_of(joined_.gpu);
    if (spares.size() == kMostSpares) {
      nccl_library().comm_abort(spares.front().comm);
      spares.erase(spares.begin());
    }
    spares.push_back(std::move(joined_));
  }
  void keep() override { keeps_ = true; }

  void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
    comes(stream, true);
    nccl_call(nccl_library().all_gather(from, to, bytes, kNcclInt8, comm_, cuda(stream)),
              "ncclAllGather");
    made(stream);
  }
  // Sends and receives have kernels always.
  void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
    comes(stream, false);
    if (windows_.hold(from) && windows_.hold(to)) {
      nccl_call(nccl_library().all_to_all(from, to, bytes, kNcclInt8, comm_, cuda(stream)),
                "ncclAlltoAll");
      return made(stream);
    }
    nccl_call(nccl_library().group_start(), "ncclGroupStart");
    int result = kNcclSuccess;
    for (int peer = 0; peer < joined_.size && result == kNcclSuccess; ++peer) {
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

  std::string reach() const override { return windows_.reach(); }
  bool has_room(std::size_t bytes) const override { return windows_.have_room(bytes); }
  void reserve(std::size_t bytes) override { windows_.reserve(bytes); }
  void* allocate(std::size_t bytes) override { return windows_.allocate(bytes); }
  void release(void* memory) noexcept override { windows_.release(memory); }

  void launched(BackendStream* stream) override { last_.record(stream); }

  void measure(bool on) override { measuring_ = on; }
  Spent take_spent() override { return {.gathers = gathers_.take(), .others = others_.take()}; }

  bool busy() override { return last_.busy(); }
  std::string failure() override {
    const int error = error_of(comm_);
    return error == kNcclSuccess || error == kNcclInProgress
               ? ""
               : std::string("NCCL: ") + nccl_library().error_string(error);
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

  LastCall last_;
  Joined joined_;
  const NcclComm comm_;
  NcclWindows windows_;
  bool keeps_ = false;
  bool measuring_ = false;
  EventStopwatch gathers_, others_;
  EventStopwatch* measures_ = nullptr;  // The call under way; null before the first.
  bool in_group_ = false;
  BackendStream* group_stream_ = nullptr;  // For the group under way, once it has a call.
};

}  // namespace

CommunicatorId new_nccl_id() {
  NcclUniqueId id{};
  nccl_call(nccl_library().get_unique_id(&id), "ncclGetUniqueId");
  CommunicatorId bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

BackendCommunicator* join_nccl(const CommunicatorId& id, int rank, int size,
                               std::function<void(std::int64_t)> takes) {
  if (id.empty()) return std::make_unique<PeerCopies>().release();
  return std::make_unique<NcclRanks>(id, rank, size, std::move(takes)).release();
}

std::vector<CommunicatorId> spare_nccl_ids(int rank, int size) {
  std::vector<CommunicatorId> ids;
  for (const Joined& one : spares_of(current_gpu())) {
    if (one.rank == rank && one.size == size && one.order_of_sums == order_of_sums())
      ids.push_back(one.id);
  }
  return ids;
}

}  // namespace lockstep
