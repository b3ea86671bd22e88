// An error that a scenario is too small to show: a threshold that is a few units of 2^32 off drops
// the same elements.
#include <gtest/gtest.h>

#include "engine/nn/layer.h"

namespace lockstep {
namespace {

Dropout site_of(std::int64_t millionths, int layer = 0, int site = 0) {
  Scenario::Model model;
  model.dropout = Ratio{millionths};
  return dropout_site(model, layer, site);
}

// floor(p * 2^32) for the decimal p. The nearest double of p is as good: where p * 2^32 is no
// integer it is at least 1/15625 away from one, and where it is one p is a multiple of 1/64.
TEST(DropoutSite, HasTheThresholdOfTheDecimal) {
  for (std::int64_t millionths = 1; millionths <= 900'000; ++millionths) {
    const auto want = static_cast<std::uint32_t>((millionths << 32) / 1'000'000);
    ASSERT_EQ(site_of(millionths).threshold, want) << millionths;
  }
}

TEST(DropoutSite, IsItsLayersOwn) {
  EXPECT_FALSE(site_of(0).active);
  EXPECT_TRUE(site_of(1).active);
  EXPECT_EQ(site_of(100'000, 3, 1).site, 13u);
}

}  // namespace
}  // namespace lockstep
