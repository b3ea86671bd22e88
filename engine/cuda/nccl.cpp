// The few functions of libnccl.so.2 that are called, declared here: the interface has been stable since version 2.7,
// and a build needs no header of it.
#include "engine/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/call.h"

namespace lockstep {
namespace {

using Comm = struct ncclComm*;
struct UniqueId {
  char internal[128];
};
constexpr int kSuccess = 0, kInProgress = 7;  // ncclResult_t
constexpr int kInt8 = 0, kFloat32 = 7;        // ncclDataType_t
constexpr int kSum = 0;                       // ncclRedOp_t

struct Library {
  const char* (*error_string)(int);
  int (*get_unique_id)(UniqueId*);
  int (*comm_init_rank)(Comm*, int size, UniqueId, int rank);
  int (*comm_abort)(Comm);
  int (*comm_get_async_error)(Comm, int*);
  int (*all_gather)(const void* from, void* to, std::size_t count, int type, Comm, cudaStream_t);
  int (*reduce_scatter)(const void* from, void* to, std::size_t count, int type, int op, Comm, cudaStream_t);
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, Comm, cudaStream_t);
  int (*send)(const void* from, std::size_t count, int type, int peer, Comm, cudaStream_t);
  int (*receive)(void* to, std::size_t count, int type, int peer, Comm, cudaStream_t);
  int (*group_start)();
  int (*group_end)();
};

// What fails is thrown by the program, on its own side.
[[noreturn]] void fail(const std::string& code, const char* what) {
  cuda_raise(code.c_str(), what, std::source_location::current());
}

template <class Function>
void find(void* file, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(file, name));
  if (!function) fail("libnccl.so.2 lacks it", name);
}

Library open_library() {
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);                        // In-switch sums and their memory are not asked for.
  ::setenv("NCCL_GRAPH_REGISTER", "0", 0);                     // What is captured takes the way that is taken eagerly.
  void* file = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // Never closed: it has threads.
  if (!file) fail(dlerror(), "open NCCL");
  Library nccl{};
  find(file, "ncclGetErrorString", nccl.error_string);
  find(file, "ncclGetUniqueId", nccl.get_unique_id);
  find(file, "ncclCommInitRank", nccl.comm_init_rank);
  find(file, "ncclCommAbort", nccl.comm_abort);
  find(file, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(file, "ncclAllGather", nccl.all_gather);
  find(file, "ncclReduceScatter", nccl.reduce_scatter);
  find(file, "ncclAllReduce", nccl.all_reduce);
  find(file, "ncclSend", nccl.send);
  find(file, "ncclRecv", nccl.receive);
  find(file, "ncclGroupStart", nccl.group_start);
  find(file, "ncclGroupEnd", nccl.group_end);
  return nccl;
}

const Library& library() {
  static const Library nccl = open_library();
  return nccl;
}

void call(int result, const char* name) {
  if (result != kSuccess) fail(library().error_string(result), name);
}
cudaStream_t cuda(BackendStream* stream) { return reinterpret_cast<cudaStream_t>(stream); }

class NcclRanks final : public BackendCommunicator {
 public:
  NcclRanks(const UniqueId& id, int rank, int size) : size_(size) {
    cuda_call(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const int result = library().comm_init_rank(&comm_, size, id, rank);
    if (result != kSuccess) static_cast<void>(cudaEventDestroy(done_));
    call(result, "ncclCommInitRank");
  }
  // Not ncclCommDestroy, which waits for ranks that may be gone.
  ~NcclRanks() override {
    library().comm_abort(comm_);
    static_cast<void>(cudaEventDestroy(done_));
  }

  void all_gather(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
    comes(stream, true);
    call(library().all_gather(from, to, bytes, kInt8, comm_, cuda(stream)), "ncclAllGather");
    made(stream);
  }
  void all_to_all(BackendStream* stream, void* to, const void* from, std::size_t bytes) override {
    comes(stream, false);
    call(library().group_start(), "ncclGroupStart");
    int result = kSuccess;
    for (int peer = 0; peer < size_ && result == kSuccess; ++peer) {
      const std::size_t first = static_cast<std::size_t>(peer) * bytes;
      result = library().send(static_cast<const std::byte*>(from) + first, bytes, kInt8, peer, comm_, cuda(stream));
      if (result != kSuccess) break;
      result = library().receive(static_cast<std::byte*>(to) + first, bytes, kInt8, peer, comm_, cuda(stream));
    }
    const int ended = library().group_end();  // Even so: else the thread stays in the group.
    call(result, "ncclSend or ncclRecv");
    call(ended, "ncclGroupEnd");
    made(stream);
  }
  void reduce_scatter(BackendStream* stream, float* to, const float* from, std::size_t bytes) override {
    const std::size_t count = bytes / sizeof(float);
    comes(stream, false);
    call(library().reduce_scatter(from, to, count, kFloat32, kSum, comm_, cuda(stream)), "ncclReduceScatter");
    made(stream);
  }
  void all_reduce(BackendStream* stream, float* data, std::size_t bytes) override {
    const std::size_t count = bytes / sizeof(float);
    comes(stream, false);
    call(library().all_reduce(data, data, count, kFloat32, kSum, comm_, cuda(stream)), "ncclAllReduce");
    made(stream);
  }

  void begin_group() override {
    call(library().group_start(), "ncclGroupStart");
    in_group_ = true;
    group_stream_ = nullptr;
  }
  void end_group() override {
    in_group_ = false;
    call(library().group_end(), "ncclGroupEnd");
    if (group_stream_ != nullptr) made(group_stream_);
  }

  void launched(BackendStream* stream) override { cuda_call(cudaEventRecord(done_, cuda(stream)), "cudaEventRecord"); }

  void measure(bool on) override { measuring_ = on; }
  Spent take_spent() override {
    Spent spent;
    for (const Measured& one : std::exchange(measured_, {})) {
      float ms = 0;
      cuda_call(cudaEventSynchronize(one.end), "cudaEventSynchronize");
      cuda_call(cudaEventElapsedTime(&ms, one.begin, one.end), "cudaEventElapsedTime");
      (one.gather ? spent.gathers : spent.others) += ms * 1e-3;
      cuda_call(cudaEventDestroy(one.begin), "cudaEventDestroy");
      cuda_call(cudaEventDestroy(one.end), "cudaEventDestroy");
    }
    return spent;
  }

  bool busy() override {
    const bool busy = cudaEventQuery(done_) == cudaErrorNotReady;
    if (busy) static_cast<void>(cudaGetLastError());  // Else it would look like a failed launch of this thread's.
    return busy;
  }
  std::string failure() override {
    int error = kSuccess;
    const int result = library().comm_get_async_error(comm_, &error);
    if (result == kSuccess && (error == kSuccess || error == kInProgress)) return "";
    return std::string("NCCL: ") + library().error_string(result != kSuccess ? result : error);
  }

 private:
  struct Measured {
    cudaEvent_t begin, end;
    bool gather;
  };
  static cudaEvent_t recorded(BackendStream* stream) {
    cudaEvent_t event = nullptr;
    cuda_call(cudaEventCreate(&event), "cudaEventCreate");
    cuda_call(cudaEventRecord(event, cuda(stream)), "cudaEventRecord");
    return event;
  }
  static bool captures(BackendStream* stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cuda_call(cudaStreamIsCapturing(cuda(stream), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
  // A group comes with its first call, and is made when it ends. What is captured is neither measured nor looked at by
  // the watchdog: its launch is.
  void comes(BackendStream* stream, bool gather) {
    if (measuring_ && group_stream_ == nullptr && !captures(stream)) {
      measured_.push_back({recorded(stream), nullptr, gather});
    }
    if (in_group_) group_stream_ = stream;
  }
  void made(BackendStream* stream) {
    if (in_group_) return;
    group_stream_ = nullptr;
    if (captures(stream)) return;
    if (measuring_) measured_.back().end = recorded(stream);
    cuda_call(cudaEventRecord(done_, cuda(stream)), "cudaEventRecord");
  }

  int size_;
  Comm comm_ = nullptr;
  bool measuring_ = false;
  std::vector<Measured> measured_;
  bool in_group_ = false;
  BackendStream* group_stream_ = nullptr;  // Of the group under way, once it has a call.
  cudaEvent_t done_ = nullptr;             // After the last call.
};

}  // namespace

CommunicatorId new_nccl_id() {
  UniqueId id{};
  call(library().get_unique_id(&id), "ncclGetUniqueId");
  CommunicatorId bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

BackendCommunicator* join_nccl(const CommunicatorId& bytes, int rank, int size) {
  UniqueId id{};
  if (bytes.size() != sizeof id) fail("ncclInvalidArgument", "join_nccl");
  std::memcpy(&id, bytes.data(), sizeof id);
  return std::make_unique<NcclRanks>(id, rank, size).release();
}

}  // namespace lockstep
