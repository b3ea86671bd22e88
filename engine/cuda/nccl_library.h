// The few functions of libnccl.so.2 that are called, declared here: their interface has been stable
// since version 2.7, that of the last ones since 2.28, and a build needs no header of it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace lockstep {

using NcclComm = struct ncclComm*;
struct NcclUniqueId {
  char internal[128];
};
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;  // ncclResult_t
inline constexpr int kNcclInt8 = 0, kNcclFloat32 = 7;        // ncclDataType_t
inline constexpr int kNcclSum = 0;                           // ncclRedOp_t
inline constexpr int kNcclSymmetricWindow = 1;               // NCCL_WIN_COLL_SYMMETRIC

struct NcclLibrary {
  const char* (*error_string)(int);
  int (*get_unique_id)(NcclUniqueId*);
  int (*comm_init_rank)(NcclComm*, int size, NcclUniqueId, int rank);
  int (*comm_abort)(NcclComm);
  int (*comm_get_async_error)(NcclComm, int*);
  int (*all_gather)(const void* from, void* to, std::size_t count, int type, NcclComm,
                    cudaStream_t);
  int (*reduce_scatter)(const void* from, void* to, std::size_t count, int type, int op, NcclComm,
                        cudaStream_t);
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, NcclComm,
                    cudaStream_t);
  int (*send)(const void* from, std::size_t count, int type, int peer, NcclComm, cudaStream_t);
  int (*receive)(void* to, std::size_t count, int type, int peer, NcclComm, cudaStream_t);
  int (*group_start)();
  int (*group_end)();

  // Copy engines. Where they are off, for `copy_engines_off`, these may be null.
  std::string copy_engines_off;
  int (*mem_alloc)(void** memory, std::size_t bytes);
  int (*mem_free)(void* memory);
  int (*window_register)(NcclComm, void* memory, std::size_t bytes, void** window, int flags);
  int (*window_deregister)(NcclComm, void* window);
  int (*all_to_all)(const void* from, void* to, std::size_t count, int type, NcclComm,
                    cudaStream_t);
};

// Opened by the first call, which throws DeviceError if it is not there.
const NcclLibrary& nccl_library();

// Throws the library's words. `name`: of the function that returned it.
void nccl_call(int result, const char* name);

}  // namespace lockstep
