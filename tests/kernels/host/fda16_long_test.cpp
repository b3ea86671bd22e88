// 10^8 dots of every fast form of FDA16 against the scalar model.
#include "tests/kernels/host/fda_families.h"

namespace lockstep {
namespace {

class FastForm : public testing::TestWithParam<FdaForm> {};

TEST_P(FastForm, EqualsTheScalarModelOnManyDots) {
  expect_equal_to_the_scalar_model(GetParam(), 100000000);
}

std::vector<FdaForm> fast_forms() {
  std::vector<FdaForm> forms = fda_forms();
  forms.pop_back();  // The scalar model itself.
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, FastForm, testing::ValuesIn(fast_forms()),
                         [](const auto& info) { return std::string(info.param.name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FastForm);

}  // namespace
}  // namespace lockstep
