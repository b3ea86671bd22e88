// Guard and calibration of a GPU.
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/case/calibrate.h"
#include "harness/case/calibrate_fp8.h"
#include "harness/case/guard.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// The CUDA object is told of a fault when it is opened.
std::unique_ptr<Backend> open_with(const char* planted) {
  plant_fault(planted);
  std::unique_ptr<Backend> gpu = open_cuda();
  plant_fault("");
  return gpu;
}

TEST(GuardOnAGpu, LetsASoundOnePass) { guard_device(*open_with("")); }
TEST(GuardOnAGpu, RefusesOneThatFlushesSubnormals) {
  EXPECT_THROW(guard_device(*open_with("device-flushes-subnormals")), WorldError);
}

TEST(CalibrateOnAGpu, ItsTensorCoresAreTheModel) {
  const std::unique_ptr<Backend> gpu = open_with("");
  const auto model = tensor_core("sm_" + std::to_string(gpu->info().compute_capability));
  ASSERT_TRUE(model) << "no constants are known for this GPU";
  const Calibration result = calibrate(*gpu, *model, 2'000'000, 3);
  EXPECT_EQ(result.differences, 0) << (result.first ? text(*result.first) : "");
}
TEST(CalibrateOnAGpu, ItsFp8TensorCoresAreTheModel) {
  const Fp8Calibration result = calibrate_fp8(*open_with(""), 2'000'000, 3);
  EXPECT_EQ(result.differences, 0) << (result.first ? text(*result.first) : "");
}
TEST(CalibrateOnAGpu, SeesAProductThatIsLeftOut) {
  EXPECT_GT(calibrate(*open_with("tensor-core-drops-a-product"), kSm90, 1, 3).differences, 0);
}

}  // namespace
}  // namespace lockstep
