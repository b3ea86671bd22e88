// A calibration finds a tensor core that is not the model's, and names the first dot.
#include "harness/case/calibrate.h"

#include <gmock/gmock.h>

#include "kernels/core/fault.h"

namespace lockstep {
namespace {

TEST(Calibrate, TheSimulatedDeviceIsTheModel) {
  const std::unique_ptr<Backend> sim = open_sim();
  const Calibration result = calibrate(*sim, kSm90, 400'000, 1);
  EXPECT_GE(result.dots, 400'000);
  EXPECT_EQ(result.differences, 0);
  EXPECT_FALSE(result.first);
}

TEST(Calibrate, NamesTheFirstDotThatDiffers) {
  plant_fault("tensor-core-drops-a-product");
  const std::unique_ptr<Backend> sim = open_sim();
  const Calibration result = calibrate(*sim, kSm90, 1, 1);
  plant_fault("");
  ASSERT_TRUE(result.first);
  EXPECT_GT(result.differences, 100);
  const DotDifference& first = *result.first;
  EXPECT_NE(bits(first.got), bits(first.want));
  // The named value is the difference: the model without the last product gives what was got.
  const float want = fda_chain(kSm90, 0, 16, first.a.data(), 1, first.b.data(), 1, first.c);
  const float got = fda_chain(kSm90, 0, 15, first.a.data(), 1, first.b.data(), 1, first.c);
  EXPECT_EQ(bits(first.want), bits(want));
  EXPECT_EQ(bits(first.got), bits(got));
  EXPECT_THAT(text(first), testing::HasSubstr("family \"" + first.family + "\""));
}

// Any other constants are refuted at once: what the model says is what is compared.
TEST(Calibrate, RefutesOtherConstants) {
  const std::unique_ptr<Backend> sim = open_sim();
  for (const TensorCore& other : {TensorCore{24, 16, -133}, TensorCore{26, 16, -133},
                                  TensorCore{25, 8, -133}, TensorCore{25, 16, -126}}) {
    EXPECT_GT(calibrate(*sim, other, 100'000, 1).differences, 0)
        << other.fraction_bits << ", " << other.group << ", " << other.min_exponent;
  }
}

}  // namespace
}  // namespace lockstep
