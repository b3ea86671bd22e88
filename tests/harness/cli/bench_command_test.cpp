// `bench` as scripts see it: its sections, its numbers and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kSmall = "schema: 1\nname: small\nnumerics: [fp32]\n";

class BenchCommand : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(BenchCommand, MeasuresAllThreeModes) {
  const Ran ran = run_lockstep("bench --device sim --budget 0.05 --json " + (folder_ / "b.json") +
                               " " + library_file("packed-fallback-mix"));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const boost::json::value json = boost::json::parse(slurp(folder_ / "b.json"));
  EXPECT_GT(json.at("scenarios_per_second").to_number<double>(), 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_GT(json.at("steps").at(i).at("median_seconds").to_number<double>(), 0);
  EXPECT_GT(json.at("kernels").as_array().size(), 20u);
  // The user hears at once what runs.
  EXPECT_THAT(ran.err, testing::StartsWith("lockstep bench: measures the simulated device here"));
  for (const char* section : {"scenarios", "kernels", "step", "schedules", "checker"})
    EXPECT_THAT(ran.err, HasSubstr("section " + std::string(section) + "\n"));
  EXPECT_THAT(ran.err, Not(HasSubstr("section door")));
}

TEST_F(BenchCommand, WhatOneDeviceIsMeasuredWithHasOneRank) {
  const std::string file = folder_.file(
      "ranks.yaml",
      std::string(kSmall) +
          "model: {pattern: \"M*-\"}\nparallel: {data: 3}\nfsdp: {strategy: optim_grads}\n"
          "data: {pack_length: 7, documents: [[[3, 0, 4]]]}\n"
          "checker: {poison: [padding, staging], delays: [{stream: gather, rank: 2, spin: 5}]}\n");
  for (const char* section : {"kernels", "step", "offload"}) {
    const Ran ran = run_lockstep("bench --device sim --budget 0.01 --section " +
                                 std::string(section) + " " + file);
    EXPECT_EQ(ran.status, 0) << section << "\n" << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("the 6 microbatches of 3 ranks, by one"));
  }
  const std::string one_graph =
      folder_.file("graph.yaml", std::string(kSmall) +
                                     "model: {pattern: \"-\"}\ncuda_graph: {impl: full_iteration}\n"
                                     "parallel: {data: 2, transport: shm}\n");
  const Ran all = run_lockstep("bench --device sim --budget 0.01 " + one_graph);
  EXPECT_EQ(all.status, 0) << all.err;
  // Threads cannot meet inside of a graph.
  const std::string stages = folder_.file(
      "stages.yaml", std::string(kSmall) +
                         "model: {pattern: \"--\"}\ncuda_graph: {impl: full_iteration}\n"
                         "parallel: {pipeline: 2, transport: shm}\n");
  for (const std::string& one : {one_graph, stages}) {
    const Ran checker = run_lockstep("bench --device sim --section checker " + one);
    EXPECT_EQ(checker.status, 2) << checker.err;
    EXPECT_THAT(checker.err, HasSubstr("can run in one process"));
  }
  const Ran plan = run_lockstep("plan-packing --device sim --budget 0.01 " + file);
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("18 packs"));
}

TEST_F(BenchCommand, MeasuresOffloading) {
  const Ran ran = run_lockstep("bench --device sim --section offload --budget 0.01 --json " +
                               (folder_ / "b.json"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  const auto found = boost::json::parse(slurp(folder_ / "b.json")).at("offload");
  EXPECT_GT(found.at("link").at("alone").at("to_host").as_double(), 0);
  const auto& rows = found.at("rows").as_array();
  // Three modes, five fractions; behind each of partial that moves something, captured copies.
  ASSERT_EQ(rows.size(), 15u + 4u);
  std::int64_t peak = 0;  // Of the mode's row without offloading.
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const boost::json::object& row = rows[i].as_object();
    const std::int64_t bytes = row.at("bytes_of_a_microbatch").as_int64();
    const bool plain = row.at("fraction").as_double() == 0;
    if (plain) peak = row.at("peak_bytes").as_int64();
    EXPECT_EQ(bytes == 0, plain) << i;
    EXPECT_EQ(row.at("peak_bytes").as_int64() == peak, plain) << i;
    const bool captured = row.at("captured").as_bool();
    EXPECT_EQ(row.at("copies_in_graphs").as_double() > 0, captured) << i;
    if (!captured) continue;
    const boost::json::object& eager = rows[i - 1].as_object();
    EXPECT_EQ(row.at("mode"), "partial") << i;
    EXPECT_EQ(eager.at("fraction"), row.at("fraction")) << i;
    EXPECT_FALSE(eager.at("captured").as_bool()) << i;
    EXPECT_EQ(eager.at("bytes_of_a_microbatch").as_int64(), bytes) << i;
  }
}

TEST_F(BenchCommand, TimesTheOpsThatAreAskedFor) {
  const Ran ran = run_lockstep(
      "bench --device sim --section kernels --only linear_forward --json " + (folder_ / "b.json"));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const boost::json::value json = boost::json::parse(slurp(folder_ / "b.json"));
  EXPECT_FALSE(json.as_object().contains("steps"));
  ASSERT_GT(json.at("kernels").as_array().size(), 0u);
  for (const auto& kernel : json.at("kernels").as_array()) {
    EXPECT_TRUE(kernel.at("op").as_string().starts_with("linear_forward"));
    EXPECT_GT(kernel.at("seconds").to_number<double>(), 0);
    EXPECT_GT(kernel.at("flop").to_number<double>(), 0);
  }
  EXPECT_EQ(run_lockstep("bench --device sim --section nothing").status, 2);
  for (const char* section : {"kernels", "step", "fsdp", "pipeline", "experts"}) {
    const Ran none = run_lockstep("bench --device sim --budget 0.01 --only nothing --section " +
                                  std::string(section));
    EXPECT_EQ(none.status, 2) << section;
    EXPECT_THAT(none.err, HasSubstr("nothing in section " + std::string(section))) << section;
  }
  EXPECT_EQ(run_lockstep("bench --device sim --section scenarios H1").status, 2);
}

}  // namespace
}  // namespace lockstep
