#include "harness/run/worker_place.h"

#include <malloc.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace lockstep {

void take_gpu(int number, int gpus) {
  if (gpus < 2) return;
  std::string name = std::to_string(number % gpus);
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream names(visible);
    for (int i = 0; i <= number % gpus && std::getline(names, name, ','); ++i) continue;
  }
  ::setenv("CUDA_VISIBLE_DEVICES", name.c_str(), 1);
}

void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
  ::mallopt(M_ARENA_MAX, 1);  // Ranks are threads that take turns.
}

}  // namespace lockstep
