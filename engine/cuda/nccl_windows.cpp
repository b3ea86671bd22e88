#include "engine/cuda/nccl_windows.h"

#include <fstream>

#include "engine/copy_engines.h"
#include "engine/cuda/call.h"

namespace lockstep {
namespace {

// Ranks reach one another on one machine, which has one boot.
std::string reach_of(int size) {
  if (!nccl_library().copy_engines_off.empty() || size > kCopyEnginesMostRanks) return "";
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

}  // namespace

NcclWindows::NcclWindows(NcclComm comm, int size)
    : comm_(comm), reach_(reach_of(size)), memory_([this](std::size_t bytes) { return make(bytes); }) {}

void NcclWindows::close() noexcept {
  for (const Window& window : made_) {
    nccl_library().window_deregister(comm_, window.handle);
    nccl_library().mem_free(window.memory);
  }
  made_.clear();
}

void* NcclWindows::make(std::size_t bytes) {
  const NcclLibrary& nccl = nccl_library();
  std::size_t free = 0, all = 0;
  cuda_call(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  if (free < bytes) cuda_call(cudaErrorMemoryAllocation, "ncclMemAlloc");  // Its own error says less.
  Window window{};
  nccl_call(nccl.mem_alloc(&window.memory, bytes), "ncclMemAlloc");
  const int result = nccl.window_register(comm_, window.memory, bytes, &window.handle, kNcclSymmetricWindow);
  if (result != kNcclSuccess) nccl.mem_free(window.memory);
  nccl_call(result, "ncclCommWindowRegister");
  made_.push_back(window);
  if (made_.size() == 1) warm_up(static_cast<std::byte*>(window.memory));
  return window.memory;
}

// Two gathers of a few bytes. The first makes NCCL's flags, which no capture may do. Eager calls number the two flags
// of a peer from 1 on and leave them so, and captured ones wait for 1 and take it back: behind the second no flag is 1.
void NcclWindows::warm_up(std::byte* memory) const {
  constexpr std::size_t kBytes = 256;
  cudaStream_t stream = nullptr;
  cuda_call(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  int result = kNcclSuccess;
  for (int i = 0; i < 2 && result == kNcclSuccess; ++i) {
    result = nccl_library().all_gather(memory, memory + kBytes, kBytes, kNcclInt8, comm_, stream);
  }
  const cudaError_t done = cudaStreamSynchronize(stream);
  static_cast<void>(cudaStreamDestroy(stream));
  nccl_call(result, "ncclAllGather by copy engines; LOCKSTEP_COPY_ENGINES=0 takes kernels");
  cuda_call(done, "cudaStreamSynchronize");
}

}  // namespace lockstep
