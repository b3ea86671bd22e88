// A calibration of fp8 holds for the simulated device, and refutes a model with longer chains.
#include "harness/case/calibrate_fp8.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

TEST(CalibrateFp8, TheSimulatedDeviceIsTheModel) {
  const std::unique_ptr<Backend> sim = open_sim();
  const Fp8Calibration result = calibrate_fp8(*sim, 90'000, 1);
  EXPECT_GE(result.sums, 90'000);
  EXPECT_EQ(result.differences, 0) << text(*result.first);
}
TEST(CalibrateFp8, RefutesLongerAndShorterChains) {
  const std::unique_ptr<Backend> sim = open_sim();
  for (const std::int64_t run : {64, 256, 288}) {
    const Fp8Calibration result = calibrate_fp8(*sim, 1, 1, run);
    EXPECT_GT(10 * result.differences, result.sums) << run;
    ASSERT_TRUE(result.first);
    EXPECT_THAT(text(*result.first), testing::HasSubstr("family \"" + result.first->family + "\""));
  }
}

}  // namespace
}  // namespace lockstep
