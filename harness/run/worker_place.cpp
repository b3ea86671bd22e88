#include "harness/run/worker_place.h"

#include <malloc.h>
#include <sched.h>

#include <cstdlib>
#include <optional>
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

namespace {

std::optional<cpu_set_t> left_cores;  // NOLINT: of the process, as its cores are.

}  // namespace

void take_core(int number, int workers) {
  cpu_set_t may;
  if (::sched_getaffinity(0, sizeof may, &may) != 0) return;  // More cores than a set has.
  const int cores = CPU_COUNT(&may);
  if (cores < workers || cores >= 2 * workers) return;
  int core = 0;
  for (int before = -1;; ++core) {
    if (CPU_ISSET(core, &may) && ++before == number) break;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (::sched_setaffinity(0, sizeof one, &one) == 0) left_cores = may;
}

void leave_core() {
  if (left_cores) ::sched_setaffinity(0, sizeof *left_cores, &*left_cores);
}

void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
  ::mallopt(M_ARENA_MAX, 1);  // Ranks are threads that take turns.
}

}  // namespace lockstep
