// 10^8 dot products of all families by the fast forms against the scalar text.
#include "tests/oracle/arithmetic/fda16_cases.h"

namespace lockstep::oracle {
namespace {

TEST(forms, have_the_bits_of_the_scalar_text_in_long_runs) {
  const std::int64_t dots = 100'000'000 / (2 * static_cast<std::int64_t>(std::size(kFamilies))) + 1;
  std::uint32_t seed = 1000;
  for (const Fda16Form form : {Fda16Form::avx2, Fda16Form::avx512}) {
    if (!supported(form)) continue;
    for (const Family family : kFamilies)
      EXPECT_EQ(first_difference(form, family, ++seed, dots), "");
  }
}

}  // namespace
}  // namespace lockstep::oracle
