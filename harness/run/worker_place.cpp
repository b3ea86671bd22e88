#include "harness/run/worker_place.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/at.h"

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

// Counts the hardware threads of this one's core that have a smaller number. The kernel lists them
// as "0,32" or "0-1".
int number_in_core(int thread) {
  std::ifstream in("/sys/devices/system/cpu/cpu" + std::to_string(thread) +
                   "/topology/thread_siblings_list");
  int smaller = 0;
  for (std::string range; std::getline(in, range, ',');) {
    int first = 0, last = 0;
    const int ends = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (ends < 1) break;
    smaller += std::max(std::min(ends == 1 ? first : last, thread - 1) - first + 1, 0);
  }
  return smaller;
}

// One hardware thread of each core first, then the next of each.
std::vector<int> by_core(const cpu_set_t& may) {
  std::vector<std::pair<int, int>> order;
  for (int thread = 0; thread < CPU_SETSIZE; ++thread) {
    if (CPU_ISSET(thread, &may)) order.emplace_back(number_in_core(thread), thread);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> threads;
  for (const auto& [number, thread] : order) threads.push_back(thread);
  return threads;
}

}  // namespace

void take_core(int number, int workers) {
  cpu_set_t may;
  if (::sched_getaffinity(0, sizeof may, &may) != 0) return;  // More cores than a set has.
  const int cores = CPU_COUNT(&may);
  if (cores < workers || cores >= 2 * workers) return;
  const std::vector<int> threads = by_core(may);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(at(threads, number), &one);
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
