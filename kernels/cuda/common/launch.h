// How an op reaches a CUDA stream: kernel launches and nothing else, so that every op can be
// captured.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/core/queue.h"

namespace lockstep {

// Throws std::runtime_error with CUDA's name of the error if a launch failed.
void cuda_launch_check(cudaError_t launched);

// The number of multiprocessors of the current device.
unsigned multiprocessors();

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;

// The number of blocks that cover `items` items.
constexpr unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

#ifdef __CUDACC__
// The first statement of a kernel that is launched with `overlaps`. It lets the next kernel start,
// and waits until the previous one has ended and its writes are visible. So blocks are placed and
// arguments read while the previous kernel ends, and the end of a kernel implies that of all before
// it.
__device__ __forceinline__ void pdl_begin() {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
#endif

// Launch settings besides grid and block.
struct LaunchOptions {
  std::size_t shared_bytes = 0;  // Dynamic shared memory.
  bool overlaps = false;  // Starts once every block of the previous kernel has ended or allowed it.
};
inline constexpr LaunchOptions kPdl = {.overlaps =
                                           true};  // For kernels that begin with pdl_begin().

// Grid and arguments depend on shapes alone. An empty grid has nothing to write.
template <class... Parameters, class... Arguments>
void launch(CudaQueue queue, dim3 grid, dim3 block, const LaunchOptions& options,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = options.shared_bytes;
  config.stream = queue.stream;
  config.attrs = &overlap;
  config.numAttrs = options.overlaps ? 1 : 0;
  cuda_launch_check(cudaLaunchKernelEx(&config, kernel, arguments...));
}
template <class... Parameters, class... Arguments>
void launch(CudaQueue queue, dim3 grid, dim3 block, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  launch(queue, grid, block, LaunchOptions{}, kernel, arguments...);
}

}  // namespace lockstep
