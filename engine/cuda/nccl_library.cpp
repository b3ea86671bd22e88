#include "engine/cuda/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <source_location>

#include "engine/cuda/call.h"
#include "engine/device/copy_engines.h"

namespace lockstep {
namespace {

// The program throws the error, on its own side.
[[noreturn]] void fail(const std::string& code, const char* what) {
  cuda_raise(code.c_str(), what, std::source_location::current());
}

template <class Function>
bool has(void* file, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(file, name));
  return function != nullptr;
}
template <class Function>
void find(void* file, const char* name, Function*& function) {
  if (!has(file, name, function)) fail("libnccl.so.2 lacks it", name);
}

std::string why_no_copy_engines(void* file, NcclLibrary& nccl) {
  ExchangeVersions versions;
  int (*get_version)(int*) = nullptr;
  if (has(file, "ncclGetVersion", get_version)) get_version(&versions.nccl);
  cuda_call(cudaDriverGetVersion(&versions.cuda), "cudaDriverGetVersion");
  const std::string off =
      copy_engines_are_off(versions, [](const char* name) { return std::getenv(name); });
  if (!off.empty()) return off;
  const bool all = has(file, "ncclMemAlloc", nccl.mem_alloc) &&
                   has(file, "ncclMemFree", nccl.mem_free) &&
                   has(file, "ncclCommWindowRegister", nccl.window_register) &&
                   has(file, "ncclCommWindowDeregister", nccl.window_deregister) &&
                   has(file, "ncclAlltoAll", nccl.all_to_all);
  return all ? "" : "libnccl.so.2 lacks a function of theirs";
}

NcclLibrary open_library() {
  set_where_unset("NCCL_NVLS_ENABLE", "0");  // In-switch sums and their memory are not used.
  // Captured collectives take the same path as eager ones.
  set_where_unset("NCCL_GRAPH_REGISTER", "0");
  void* file = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // Never closed: it has threads.
  if (!file) fail(dlerror(), "open NCCL");
  NcclLibrary nccl{};
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
  nccl.copy_engines_off = why_no_copy_engines(file, nccl);
  // Read with a communicator; "ZERO" from 2.29.2 on.
  if (nccl.copy_engines_off.empty()) ::setenv("NCCL_CTA_POLICY", "2", 1);
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary nccl = open_library();
  return nccl;
}

void nccl_call(int result, const char* name) {
  if (result != kNcclSuccess) fail(nccl_library().error_string(result), name);
}

}  // namespace lockstep
