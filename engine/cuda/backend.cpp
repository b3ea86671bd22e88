// The CUDA device: each call at the device is one call of the runtime. No default stream, no
// device-wide synchronisation.
#include "engine/cuda/backend.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/cuda/call.h"
#include "engine/cuda/copy_branches.h"
#include "engine/cuda/info.h"
#include "engine/cuda/launches/captured_ops.h"
#include "engine/cuda/launches/waiting_ops.h"
#include "engine/cuda/nccl.h"
#include "engine/cuda/nvtx.h"
#include "engine/device/block_memory.h"
#include "kernels/cuda/common/spin.h"
#include "kernels/cuda/gemm/product_plans.h"
#include "kernels/cuda/pairs.h"
#include "kernels/cuda/table.h"
#include "kernels/diagnostics/poison.h"

namespace lockstep {
namespace {

cudaEvent_t cuda(BackendEvent* event) { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraphExec_t cuda(BackendGraph* graph) { return reinterpret_cast<cudaGraphExec_t>(graph); }

bool is_capturing(BackendStream* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_call(cudaStreamIsCapturing(cuda(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

bool is_ready(cudaError_t error, const char* call) {
  if (error != cudaErrorNotReady) cuda_call(error, call);
  static_cast<void>(cudaGetLastError());  // "Not ready" would otherwise look like a failed launch.
  return error == cudaSuccess;
}

cudaMemcpyKind cuda(CopyKind kind) {
  switch (kind) {
    case CopyKind::host_to_device:
      return cudaMemcpyHostToDevice;
    case CopyKind::device_to_host:
      return cudaMemcpyDeviceToHost;
    case CopyKind::device_to_device:
      break;
  }
  return cudaMemcpyDeviceToDevice;
}

void* make_device_block(std::size_t bytes) {
  void* memory = nullptr;
  cuda_call(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}
void* make_pinned_block(std::size_t bytes) {
  void* memory = nullptr;
  cuda_call(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  return memory;
}

// Blocks of one GPU that no open device uses. Never freed: when the process ends, the driver may be
// gone before them.
struct SpareBlocks {
  std::vector<void*> device, pinned;
  static SpareBlocks& of(int index) {
    static auto& all = *new std::map<int, SpareBlocks>;
    return all[index];
  }
};

// compute-sanitizer knows the bounds of the driver's allocations alone.
bool asks_the_driver_for_each_allocation() {
  const char* set = std::getenv("LOCKSTEP_EXACT_ALLOCATIONS");
  return set != nullptr && *set != 0;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index)
      : index_(index),
        blocks_(SpareBlocks::of(index).device, make_device_block),
        pinned_blocks_(SpareBlocks::of(index).pinned, make_pinned_block),
        exact_(asks_the_driver_for_each_allocation()) {
    int count = 0;
    cuda_call(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    if (index < 0 || index >= count) cuda_call(cudaErrorInvalidDevice, "cudaSetDevice");
    cuda_call(cudaSetDevice(index), "cudaSetDevice");
    cuda_call(cudaInitDevice(index, 0, 0), "cudaInitDevice");
    info_ = cuda_device_info(index);
  }
  ~CudaBackend() override {
    launch_waiting_if_possible();
    release_deferred();
    if (poison_stream_) end(poison_stream_);
    if (poisoned_) forget(cudaEventDestroy(poisoned_));
    if (unended_ != 0) return;  // A stream may still have work on them.
    blocks_.give_back();
    pinned_blocks_.give_back();
  }
  const DeviceInfo& info() const override { return info_; }
  DeviceClocks clocks() const override { return cuda_clocks(index_); }
  Profiler* profiler() override { return nvtx_profiler(); }
  void enter_thread() override { cuda_call(cudaSetDevice(index_), "cudaSetDevice"); }
  CommunicatorId new_communicator_id() override { return new_nccl_id(); }
  BackendCommunicator* join_communicator(const CommunicatorId& id, int rank, int size) override {
    launch_waiting();
    joined_ = true;
    return join_nccl(id, rank, size, [this](std::int64_t bytes) { count(bytes); });
  }
  std::vector<CommunicatorId> spare_communicators(int rank, int size) override {
    return spare_nccl_ids(rank, size);
  }

  void* allocate(std::size_t bytes) override {
    launch_waiting();
    release_deferred();
    void* memory = may_carve() ? blocks_.allocate(bytes) : nullptr;
    if (!memory) cuda_call(cudaMalloc(&memory, bytes), "cudaMalloc");
    if (memory) add(memory, bytes);
    if (memory) is_new(memory, bytes);
    return memory;
  }
  // Counted by whole windows, as they are taken.
  void* allocate_shared(BackendCommunicator& ranks, std::size_t bytes) override {
    launch_waiting();
    void* const memory = ranks.allocate(bytes);
    shared_.emplace(memory, &ranks);
    sizes_.emplace(memory, bytes);
    is_new(memory, bytes);
    return memory;
  }
  void release(void* memory) noexcept override {
    launch_waiting_if_possible();
    if (poison_freed_) poison_freed(memory);  // cudaFree waits for it.
    if (const auto found = shared_.find(memory); found != shared_.end()) {
      // It stays mapped and is handed out again, or goes with the communicator: neither waits.
      if (poison_stream_) forget(cudaStreamSynchronize(poison_stream_));
      found->second->release(memory);
      shared_.erase(found);
      sizes_.erase(memory);
      return break_captures();
    }
    remove(memory);
    if (blocks_.holds(memory)) return break_captures();
    if (cudaFree(memory) != cudaSuccess) defer(deferred_, memory);
  }
  void* allocate_pinned(std::size_t bytes) override {
    release_deferred();
    void* memory = may_carve() ? pinned_blocks_.allocate(bytes) : nullptr;
    if (!memory) cuda_call(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    if (memory) pinned_sizes_.emplace(memory, bytes);
    if (memory && poison_fresh_) poison_on_host(memory, bytes, PoisonMemory::kFresh);
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    launch_waiting_if_possible();
    const auto found = pinned_sizes_.find(memory);
    if (found != pinned_sizes_.end()) {
      if (poison_freed_) poison_on_host(memory, found->second, PoisonMemory::kFreed);
      pinned_sizes_.erase(found);
    }
    if (pinned_blocks_.holds(memory)) return break_captures();
    if (cudaFreeHost(memory) != cudaSuccess) defer(deferred_pinned_, memory);
  }
  void* allocate_async(BackendStream* stream, std::size_t bytes) override {
    launch_waiting();
    if (is_capturing(stream)) cuda_call(cudaErrorNotSupported, "cudaMallocAsync");
    void* memory = nullptr;
    cuda_call(cudaMallocAsync(&memory, bytes, cuda(stream)), "cudaMallocAsync");
    if (memory) add(memory, bytes);
    if (memory && poison_fresh_) poison_on(cuda(stream), memory, bytes, PoisonMemory::kFresh);
    return memory;
  }
  void release_async(BackendStream* stream, void* memory) override {
    launch_waiting();
    if (is_capturing(stream)) cuda_call(cudaErrorNotSupported, "cudaFreeAsync");
    cuda_call(cudaFreeAsync(memory, cuda(stream)), "cudaFreeAsync");
    remove(memory);
  }
  std::size_t memory_in_use() const override { return in_use_; }
  std::size_t memory_high_water() const override { return high_water_; }
  std::size_t memory_by_driver() const override {
    std::size_t free = 0, all = 0;
    cuda_call(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return all - free;
  }

  BackendStream* create_stream(const char* name) override {
    cudaStream_t stream = nullptr;
    int least = 0, greatest = 0;
    cuda_call(cudaDeviceGetStreamPriorityRange(&least, &greatest),
              "cudaDeviceGetStreamPriorityRange");
    // The least priority is left to what runs beside in graphs.
    const int usual = std::max(greatest, least - 1);
    cuda_call(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                           comes_first(name) ? greatest : usual),
              "cudaStreamCreateWithPriority");
    ++unended_;
    streams_.push_back(stream);
    if (poison_stream_) {
      behind_poison_.push_back(stream);
      follow_poison(stream);
    }
    return reinterpret_cast<BackendStream*>(stream);
  }
  void destroy_stream(BackendStream* stream) noexcept override {
    launch_waiting_if_possible();
    captured_.erase(stream);
    std::erase(streams_, cuda(stream));
    std::erase(behind_poison_, cuda(stream));
    end(cuda(stream));
  }
  BackendEvent* create_event() override {
    cudaEvent_t event = nullptr;
    cuda_call(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return reinterpret_cast<BackendEvent*>(event);
  }
  void destroy_event(BackendEvent* event) noexcept override {
    forget(cudaEventDestroy(cuda(event)));
  }

  void plan(const Submission& op) override {
    launch_waiting();
    guarded(op.type().name, [&] {
      plan_on_cuda(op.type().id, plans_, op.op());
      plan_beside(plans_, op);
    });
  }
  PlanCounts plans() const override {
    return {plans_.admitted(), plans_.refused(), plans_.passed_on()};
  }
  std::int64_t workspace_bytes(const Submission& op) override {
    std::int64_t bytes = 0;
    guarded(op.type().name, [&] { bytes = workspace_on_cuda(op.type().id, op.op()); });
    return bytes;
  }
  bool submit_fastest(BackendStream* stream, const Submission& op) override {
    launch_waiting();
    come_behind_ops(stream);
    bool done = false;
    guarded(op.type().name,
            [&] { done = run_fastest_on_cuda(op.type().id, cuda(stream), op.op()); });
    return done;
  }
  void submit(BackendStream* stream, const Submission& op) override {
    follow_poison(stream);
    // A library's calls on the stream do not pass here.
    const bool may_wait = capturing_.empty() && !joined_;
    raise_what_was_lost();
    guarded(op.type().name, [&] {
      if (may_wait && waiting_.take(cuda(stream), op)) return;
      waiting_.launch();
      if (CapturedOps* const captured = captured_by(stream)) return captured->submit(op);
      run_on_cuda(op.type().id, cuda(stream), plans_, op.op());
    });
  }
  void copy(BackendStream* stream, void* to, const void* from, std::size_t bytes,
            CopyKind kind) override {
    launch_waiting();
    follow_poison(stream);
    if (bytes == 0) return;
    come_behind_ops(stream);
    cuda_call(cudaMemcpyAsync(to, from, bytes, cuda(kind), cuda(stream)), "cudaMemcpyAsync");
    const bool pinned = kind != CopyKind::device_to_device;
    if (!pinned || capturing_.empty() || !is_capturing(stream)) return;
    branches_.copied(cuda(stream));
    for (auto& [origin, ops] : captured_) ops.stay_in_line();
  }
  void fill(BackendStream* stream, void* to, std::uint8_t byte, std::size_t bytes) override {
    launch_waiting();
    follow_poison(stream);
    come_behind_ops(stream);
    if (bytes > 0) cuda_call(cudaMemsetAsync(to, byte, bytes, cuda(stream)), "cudaMemsetAsync");
  }
  void record(BackendStream* stream, BackendEvent* event, bool external) override {
    launch_waiting();
    come_behind_ops(stream);
    const unsigned flags = external ? cudaEventRecordExternal : cudaEventRecordDefault;
    cuda_call(cudaEventRecordWithFlags(cuda(event), cuda(stream), flags),
              "cudaEventRecordWithFlags");
    if (!external) branches_.recorded(cuda(stream), cuda(event));
  }
  void wait(BackendStream* stream, BackendEvent* event, bool external) override {
    launch_waiting();
    come_behind_ops(stream);
    const unsigned flags = external ? cudaEventWaitExternal : cudaEventWaitDefault;
    cuda_call(cudaStreamWaitEvent(cuda(stream), cuda(event), flags), "cudaStreamWaitEvent");
    if (!external) branches_.waited(cuda(stream), cuda(event));
  }
  bool finished(BackendStream* stream) override {
    launch_waiting();
    return is_ready(cudaStreamQuery(cuda(stream)), "cudaStreamQuery");
  }
  bool finished(BackendEvent* event) override {
    launch_waiting();
    return is_ready(cudaEventQuery(cuda(event)), "cudaEventQuery");
  }
  void synchronize(BackendStream* stream) override {
    launch_waiting();
    cuda_call(cudaStreamSynchronize(cuda(stream)), "cudaStreamSynchronize");
  }
  void synchronize(BackendEvent* event) override {
    launch_waiting();
    cuda_call(cudaEventSynchronize(cuda(event)), "cudaEventSynchronize");
  }

  void call(BackendStream*, const char*,
            std::function<void()>) override {  // A node of the host stalls every launch.
    cuda_raise("cudaErrorNotSupported", "call", std::source_location::current());
  }
  void delay(BackendStream* stream, std::int64_t amount) override {
    launch_waiting();
    come_behind_ops(stream);
    guarded("delay", [&] { spin(CudaQueue{cuda(stream)}, amount); });
  }
  void set_poison(bool fresh, bool freed) override {
    poison_fresh_ = fresh;
    poison_freed_ = freed;
    if (!poison_stream_ && (fresh || freed)) {
      cuda_call(cudaStreamCreateWithFlags(&poison_stream_, cudaStreamNonBlocking),
                "cudaStreamCreateWithFlags");
      ++unended_;
      cuda_call(cudaEventCreateWithFlags(&poisoned_, cudaEventDisableTiming),
                "cudaEventCreateWithFlags");
    }
  }
  std::int64_t bytes_poisoned() const override { return bytes_poisoned_; }
  void host_acts() override {}

  void begin_capture(BackendStream* stream) override {
    launch_waiting();
    // No capture may wait for it.
    while (!behind_poison_.empty()) follow_poison(behind_poison_.back());
    // A library's calls on the stream do not pass here.
    void* const workspace = joined_ ? nullptr : workspace_beside(stream);
    cuda_call(cudaStreamBeginCapture(cuda(stream), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
    capturing_.insert(stream);
    if (!joined_) captured_.try_emplace(stream, cuda(stream), plans_, workspace);
  }
  CaptureStatus capture_status(BackendStream* stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cuda_call(cudaStreamIsCapturing(cuda(stream), &status), "cudaStreamIsCapturing");
    if (status == cudaStreamCaptureStatusNone) return CaptureStatus::none;
    return status == cudaStreamCaptureStatusActive ? CaptureStatus::active
                                                   : CaptureStatus::invalidated;
  }
  BackendGraph* end_capture(BackendStream* stream) override {
    launch_waiting();
    cudaGraph_t graph = nullptr;
    std::string failed;
    if (CapturedOps* const captured = captured_by(stream)) {
      try {
        captured->finish();
      } catch (const std::exception& error) {
        failed = error.what();
      }
    }
    captured_.erase(stream);
    capturing_.erase(stream);
    const bool joined = branches_.end_capture(cuda(stream));
    cuda_call(cudaStreamEndCapture(cuda(stream), &graph), "cudaStreamEndCapture");
    if (!joined && failed.empty()) failed = "cudaErrorStreamCaptureUnjoined";
    if (!failed.empty()) {
      forget(cudaGraphDestroy(graph));
      cuda_raise(failed.c_str(), "cudaStreamEndCapture", std::source_location::current());
    }
    cudaGraphExec_t exec = nullptr;
    const cudaError_t instantiated =
        cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    forget(cudaGraphDestroy(graph));
    cuda_call(instantiated, "cudaGraphInstantiate");
    // The first launch would upload it anyway, and take that time between two ops.
    const cudaError_t uploaded = cudaGraphUpload(exec, cuda(stream));
    if (uploaded != cudaSuccess) forget(cudaGraphExecDestroy(exec));
    cuda_call(uploaded, "cudaGraphUpload");
    return reinterpret_cast<BackendGraph*>(exec);
  }
  void launch(BackendGraph* graph, BackendStream* stream) override {
    launch_waiting();
    follow_poison(stream);
    cuda_call(cudaGraphLaunch(cuda(graph), cuda(stream)), "cudaGraphLaunch");
  }
  void destroy_graph(BackendGraph* graph) noexcept override {
    if (graph) forget(cudaGraphExecDestroy(cuda(graph)));
  }

 private:
  // Ranks wait for one another in an exchange: none may start late because compute has placed its
  // next blocks already.
  static bool comes_first(std::string_view stream) {
    return stream == "gather" || stream == "reduce";
  }
  // An error that a kernel throws has the name of CUDA's or the library's error; the program throws
  // it on its own side.
  template <class Call>
  static void guarded(const char* what, const Call& call) {
    std::string failed;
    try {
      call();
    } catch (const std::exception& error) {
      failed = error.what();
    }
    if (!failed.empty()) cuda_raise(failed.c_str(), what, std::source_location::current());
  }
  // Called before any call that is no op that waits.
  void launch_waiting() {
    raise_what_was_lost();
    if (!waiting_.empty()) guarded("waiting ops", [&] { waiting_.launch(); });
  }
  // Destructors call; what fails is raised by the next call that may.
  void launch_waiting_if_possible() noexcept {
    try {
      waiting_.launch();
    } catch (const std::exception& error) {
      lost_ = error.what();
    }
  }
  void raise_what_was_lost() {
    if (lost_.empty()) return;
    const std::string error = std::exchange(lost_, "");
    cuda_raise(error.c_str(), "waiting ops", std::source_location::current());
  }
  // Null if the stream captures nothing, or as one that joined another's capture.
  CapturedOps* captured_by(BackendStream* stream) {
    if (captured_.empty()) return nullptr;
    const auto found = captured_.find(stream);
    return found == captured_.end() ? nullptr : &found->second;
  }
  void come_behind_ops(BackendStream* stream) {
    if (CapturedOps* const captured = captured_by(stream))
      guarded("join", [&] { captured->join(); });
  }
  // One for each stream that captures. It is not counted: the program has no such memory. Without
  // memory for it, products stay in line.
  void* workspace_beside(BackendStream* stream) {
    void*& memory = workspaces_[stream];
    if (memory != nullptr || !may_carve()) return memory;
    try {
      memory = blocks_.allocate(kWorkspaceBeside);
    } catch (...) {  // The program's own exception.
    }
    return memory;
  }
  void poison_on(cudaStream_t stream, void* memory, std::size_t bytes, std::uint16_t half) {
    const PoisonMemory op = poison(memory, static_cast<std::int64_t>(bytes), half);
    guarded("poison", [&] { run(CudaQueue{stream}, op); });
    bytes_poisoned_ += static_cast<std::int64_t>(bytes);
  }
  void is_new(void* memory, std::size_t bytes) {
    if (poison_fresh_) poison_on(poison_stream_, memory, bytes, PoisonMemory::kFresh);
    if (poison_stream_) poison_comes_first();
  }
  // New memory may be poisoned still, as fresh or by its last owner. No stream works before that is
  // over. The device waits, not the host: on a GPU that several processes share, each wait of the
  // host takes a turn of all of them.
  void poison_comes_first() {
    if (joined_) {  // NCCL's own work on a stream does not pass here.
      cuda_call(cudaStreamSynchronize(poison_stream_), "cudaStreamSynchronize");
    } else {
      behind_poison_ = streams_;
      poisoned_is_late_ = true;
    }
  }
  void follow_poison(cudaStream_t stream) {
    if (behind_poison_.empty() || std::erase(behind_poison_, stream) == 0) return;
    if (std::exchange(poisoned_is_late_, false))
      cuda_call(cudaEventRecord(poisoned_, poison_stream_), "cudaEventRecord");
    cuda_call(cudaStreamWaitEvent(stream, poisoned_, 0), "cudaStreamWaitEvent");
  }
  void follow_poison(BackendStream* stream) { follow_poison(cuda(stream)); }
  void poison_on_host(void* memory, std::size_t bytes, std::uint16_t half) {
    run(HostQueue{}, poison(memory, static_cast<std::int64_t>(bytes), half));
    bytes_poisoned_ += static_cast<std::int64_t>(bytes);
  }
  void poison_freed(void* memory) noexcept {
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;
    try {
      poison_on(poison_stream_, memory, found->second, PoisonMemory::kFreed);
    } catch (...) {  // A destructor calls; what matters shows at the next call.
    }
  }
  // A case that failed leaves work behind, which would write into the memory of the next one.
  void end(cudaStream_t stream) noexcept {
    const cudaError_t done = cudaStreamSynchronize(stream);
    forget(done);
    unended_ -= done == cudaSuccess;
    forget(cudaStreamDestroy(stream));
  }
  // Not while a capture may be open: there the driver refuses, and it is the driver that must say
  // so.
  bool may_carve() const { return !exact_ && capturing_.empty(); }
  // The driver refuses to allocate and to free alike during a capture, which breaks by the attempt.
  void break_captures() const noexcept {
    if (capturing_.empty()) return;
    void* memory = nullptr;
    const cudaError_t refused = cudaMalloc(&memory, BlockMemory::kAlignment);
    forget(refused == cudaSuccess ? cudaFree(memory) : refused);
  }
  // In a destructor there is nobody to tell; what matters shows at the next call.
  static void forget(cudaError_t error) noexcept {
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  }
  // CUDA refuses to free during a capture, which is broken by the attempt; afterwards it works.
  static void defer(std::vector<void*>& list, void* memory) noexcept {
    forget(cudaGetLastError());
    list.push_back(memory);
  }
  void release_deferred() noexcept {
    for (void* memory : std::exchange(deferred_, {})) {
      if (cudaFree(memory) != cudaSuccess) defer(deferred_, memory);
    }
    for (void* memory : std::exchange(deferred_pinned_, {})) {
      if (cudaFreeHost(memory) != cudaSuccess) defer(deferred_pinned_, memory);
    }
  }
  void add(void* memory, std::size_t bytes) {
    sizes_.emplace(memory, bytes);
    count(static_cast<std::int64_t>(bytes));
  }
  void count(std::int64_t bytes) {
    in_use_ += static_cast<std::size_t>(bytes);
    high_water_ = std::max(high_water_, in_use_);
  }
  void remove(void* memory) noexcept {
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;
    count(-static_cast<std::int64_t>(found->second));
    sizes_.erase(found);
  }

  int index_;
  BlockMemory blocks_, pinned_blocks_;
  const bool exact_;
  int unended_ = 0;                     // Streams that may still have work.
  std::set<BackendStream*> capturing_;  // Where a capture was begun and not ended.
  WaitingOps waiting_;
  std::map<BackendStream*, CapturedOps> captured_;  // The ops of each.
  std::string lost_;  // The error of waiting ops that nobody has been told yet.
  std::map<BackendStream*, void*> workspaces_;  // For products that run beside others.
  CopyBranches branches_;
  DeviceInfo info_;
  ProductPlans plans_;
  std::map<void*, std::size_t> sizes_;
  std::map<void*, BackendCommunicator*> shared_;  // Whose memory it is.
  std::size_t in_use_ = 0, high_water_ = 0;
  std::vector<void*> deferred_, deferred_pinned_;
  std::map<void*, std::size_t> pinned_sizes_;
  cudaStream_t poison_stream_ = nullptr;
  bool poison_fresh_ = false, poison_freed_ = false;
  cudaEvent_t poisoned_ = nullptr;  // All that was poisoned; recorded once somebody waits for it.
  bool poisoned_is_late_ = true;    // Something was poisoned since it was recorded.
  bool joined_ = false;             // A communicator.
  std::vector<cudaStream_t> streams_;        // The program's.
  std::vector<cudaStream_t> behind_poison_;  // The ones that have not waited for it.
  std::int64_t bytes_poisoned_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int index) {
  return std::make_unique<CudaBackend>(index);
}

}  // namespace lockstep
