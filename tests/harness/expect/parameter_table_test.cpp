#include "harness/expect/parameter_table.h"

#include <gtest/gtest.h>

#include "oracle/oracle.h"

namespace lockstep {
namespace {

TEST(ParameterTable, IsTheOracles) {
  for (const auto activation : {MlpActivation::squared_relu, MlpActivation::swiglu}) {
    for (const bool tied : {false, true}) {
      Scenario scenario;
      scenario.model.pattern = "M*--M*";
      scenario.model.mlp.activation = activation;
      scenario.model.tied_embedding = tied;
      const oracle::Oracle oracle(scenario, {});
      const std::vector<ParameterShape> table = parameter_table(scenario);
      ASSERT_EQ(table.size(), oracle.parameters().size());
      for (std::size_t i = 0; i < table.size(); ++i) {
        const oracle::Parameter& want = oracle.parameters()[i];
        EXPECT_EQ(table[i].name, want.name);
        EXPECT_EQ(table[i].layer, want.layer);
        EXPECT_EQ(table[i].rows, want.rows) << want.name;
        EXPECT_EQ(table[i].cols, want.cols) << want.name;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
