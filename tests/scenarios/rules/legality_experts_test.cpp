// Which experts may lie in a graph, and what that leaves to offloading.
#include <gtest/gtest.h>

#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

std::string lowest_rule(const Scenario& scenario) {
  const auto errors = check_legality(scenario);
  return errors.empty() ? "none" : errors.front().rule;
}

// Without host_sync the buffers of the experts are as large in each batch, dropped pairs or none.
TEST(LegalityOfExperts, LieInAnyGraphIfTheirSizesStayOnTheDevice) {
  using enum GraphModule;
  for (const bool dropless : {false, true}) {
    for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::full_iteration}) {
      Scenario s;
      s.name = "experts";
      s.model.pattern = "*E";
      s.cuda_graph.impl = impl;
      s.model.moe.pad_to_capacity = false;
      if (dropless) s.model.moe.capacity_factor.reset();
      EXPECT_EQ(lowest_rule(s), "none");
      if (impl == GraphImpl::full_iteration) continue;
      s.cuda_graph.modules = {attn, moe};
      EXPECT_EQ(lowest_rule(s), "none");
      // The norm's input lies inside of the region, and the experts are no reason to wait (L30).
      s.offload.modules = {OffloadModule::mlp_norm, OffloadModule::expert_fc1};
      EXPECT_EQ(lowest_rule(s), "none");
      s.offload.delay_until_cuda_graph = true;
      EXPECT_EQ(lowest_rule(s), "L30");
      s.offload.delay_until_cuda_graph = false, s.cuda_graph.modules = {moe};
      EXPECT_EQ(lowest_rule(s), "L26");
    }
  }
}

}  // namespace
}  // namespace lockstep
