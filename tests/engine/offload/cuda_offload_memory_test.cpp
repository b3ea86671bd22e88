// Memory of a GPU as its driver counts it: with offloading it falls by what the plan says, against
// a run without in the same process. Large tensors, because the driver gives memory in pieces of 2
// MiB.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "engine/offload/plan.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

// cuMemGetInfo of the driver, in the context that the engine's calls on this thread made current.
std::int64_t bytes_free() {
  using MemGetInfo = int (*)(std::size_t*, std::size_t*);
  static const MemGetInfo ask = [] {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver ? reinterpret_cast<MemGetInfo>(::dlsym(driver, "cuMemGetInfo_v2")) : nullptr;
  }();
  std::size_t free = 0, total = 0;
  if (ask == nullptr || ask(&free, &total) != 0) throw std::runtime_error("cuMemGetInfo failed");
  return static_cast<std::int64_t>(free);
}

Scenario large(GraphImpl impl) {
  Scenario s;
  s.name = "large";
  s.model.pattern = "M-M*-";
  s.model.hidden = 512;
  s.model.mamba.d_inner = 512;
  s.model.mlp.hidden = 512;
  s.data.pack_length = 16384;
  s.data.documents = {{{1000, 500, 1500, 900}}};
  s.training.steps = s.training.optimizer.decay_steps = 3;
  s.cuda_graph.impl = impl;
  return s;
}

std::int64_t bytes_free_in(const Scenario& s) {
  const auto data = open_data(s);
  Device device(open_cuda());
  Trainer trainer(device, s, *data, {});
  while (trainer.steps_done() < s.training.steps) trainer.step();
  return bytes_free();
}

TEST(CudaOffloadMemory, FallsByWhatThePlanSays) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    Scenario s = large(impl);
    bytes_free_in(s);  // The context and its modules are there.
    const std::int64_t without = bytes_free_in(s);
    s.offload.modules = offloadable_modules(s);
    s.offload.max_inflight = 2;
    ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
    const std::int64_t saved = plan_offload(s).saved_bytes();
    EXPECT_GT(saved, 100'000'000);
    EXPECT_GE((bytes_free_in(s) - without) * 100, saved * 95) << to_text(impl);
  }
}

}  // namespace
}  // namespace lockstep::test
