// Ranges as a tool of CUDA sees them, which NVTX finds by the environment.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "engine/cuda/nvtx.h"
#include "engine/device/profiler_ranges.h"

namespace lockstep {
namespace {

constexpr const char* kListener = "liblockstep_nvtx_listener.so";

// Each test has a process of its own, in which NVTX looks for a tool once.
TEST(Nvtx, TellsAToolOfRanges) {
  EXPECT_EXIT(
      {
        setenv("NVTX_INJECTION64_PATH", kListener, 1);
        Profiler* const profiler = nvtx_profiler();
        if (!profiler) std::exit(2);
        ProfilerRanges(profiler).at({.step = 3, .layer = 1, .part = "qkv"}, false);
        void* const listener = dlopen(kListener, RTLD_NOW);
        const auto told =
            reinterpret_cast<const char* (*)()>(dlsym(listener, "nvtx_listener_told"));
        std::fputs(told(), stderr);
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "^domain lockstep\n\\+step 3\n\\+layer 1, qkv\n-layer 1, qkv\n-step 3\n$");
}
TEST(Nvtx, IsAbsentWithoutATool) {
  EXPECT_EXIT(
      {
        unsetenv("NVTX_INJECTION64_PATH");
        std::exit(nvtx_profiler() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
