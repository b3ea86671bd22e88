#include "engine/cuda/nccl_windows.h"

#include <utility>

#include "engine/cuda/call.h"
#include "engine/cuda/machine.h"
#include "engine/device/copy_engines.h"

namespace lockstep {
namespace {

// Ranks reach one another on one machine.
std::string reach_of(int size) {
  if (!nccl_library().copy_engines_off.empty() || size < 2 || size > kCopyEnginesMostRanks)
    return "";
  return this_machine();
}

}  // namespace

NcclWindows::NcclWindows(NcclComm comm, int size, Takes takes)
    : comm_(comm),
      reach_(reach_of(size)),
      takes_(std::move(takes)),
      memory_([this](std::size_t bytes) { return make(bytes); }) {}

void NcclWindows::close() noexcept {
  for (const Window& window : made_) give_back(window);
  made_.clear();
}

void NcclWindows::give_back(const Window& window) noexcept {
  nccl_library().window_deregister(comm_, window.handle);
  nccl_library().mem_free(window.memory);
  takes_(-static_cast<std::int64_t>(window.bytes));
}

// NCCL's own error would say less, and keep the ranks that have room.
bool NcclWindows::have_room(std::size_t bytes) const {
  std::size_t free = 0, all = 0;
  cuda_call(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return memory_.new_window(bytes) <= free;
}

void* NcclWindows::make(std::size_t bytes) {
  const NcclLibrary& nccl = nccl_library();
  Window window{.memory = nullptr, .handle = nullptr, .bytes = bytes};
  nccl_call(nccl.mem_alloc(&window.memory, bytes), "ncclMemAlloc");
  const int result =
      nccl.window_register(comm_, window.memory, bytes, &window.handle, kNcclSymmetricWindow);
  if (result != kNcclSuccess) nccl.mem_free(window.memory);
  nccl_call(result, "ncclCommWindowRegister");
  takes_(static_cast<std::int64_t>(bytes));
  try {
    if (made_.empty()) warm_up(static_cast<std::byte*>(window.memory));
  } catch (...) {
    give_back(window);
    throw;
  }
  made_.push_back(window);
  return window.memory;
}

// Two gathers of a few bytes. The first makes NCCL's flags, which no capture may do. Eager calls
// number the two flags of a peer from 1 on and leave them so, and captured ones wait for 1 and take
// it back: behind the second no flag is 1.
void NcclWindows::warm_up(std::byte* memory) const {
  constexpr std::size_t kBytes = 256;
  cudaStream_t stream = nullptr;
  cuda_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  int result = kNcclSuccess;
  for (int i = 0; i < 2 && result == kNcclSuccess; ++i) {
    result = nccl_library().all_gather(memory, memory + kBytes, kBytes, kNcclInt8, comm_, stream);
  }
  // After a failure the work that would end the wait may never come.
  const cudaError_t done = result == kNcclSuccess ? cudaStreamSynchronize(stream) : cudaSuccess;
  static_cast<void>(cudaStreamDestroy(stream));
  nccl_call(result, "ncclAllGather by copy engines; LOCKSTEP_COPY_ENGINES=0 takes kernels");
  cuda_call(done, "cudaStreamSynchronize");
}

}  // namespace lockstep
