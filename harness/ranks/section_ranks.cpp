// A step of pipeline stages beside what it would be without what it exchanges, and one of experts
// over ranks with what it waits for.
#include <algorithm>

#include "harness/base/columns.h"
#include "harness/ranks/experts.h"
#include "harness/ranks/pipeline.h"
#include "harness/ranks/ranks_of_section.h"
#include "harness/ranks/sections.h"

namespace lockstep {
namespace {

constexpr std::size_t kPipelineWidth = 25, kExpertsWidth = 17;  // With the blanks behind the name.

boost::json::object to_json(const PipelineTimes& one) {
  if (!one.not_run.empty()) return {{"mode", one.mode}, {"not_run", one.not_run}};
  boost::json::object row{{"mode", one.mode},
                          {"stages", one.stages},
                          {"chunks", one.chunks},
                          {"microbatches", one.microbatches},
                          {"step_seconds", one.step},
                          {"brief_seconds", one.brief},
                          {"work_seconds", boost::json::value_from(one.work)},
                          {"sends", one.sends},
                          {"bytes", one.bytes},
                          {"ideal_bubble", one.ideal()}};
  if (!one.has_devices) return row;
  row["bubble"] = one.bubble();
  row["above_ideal"] = one.above_ideal();
  row["exposed_seconds"] = one.exposed();
  row["ways"] = one.ways.all;
  row["ways_over_nccl"] = one.ways.over_library;
  return row;
}

void print_pipeline(const PipelineTimes& one) {
  const int width = kPipelineWidth - 1;
  if (!one.not_run.empty()) {
    return print_fitted(
        formatted("%-*s not run: %s\n", width, one.mode.c_str(), one.not_run.c_str()),
        kPipelineWidth);
  }
  std::string work;
  for (const double seconds : one.work) work += formatted(" %.3f", seconds * 1e3);
  print_fitted(formatted("%-*s %9.3f ms/step, work of the stages%s ms; %lld sends of a stage, %.1f "
                         "MB\n",
                         width, one.mode.c_str(), one.step * 1e3, work.c_str(),
                         static_cast<long long>(one.sends), one.bytes * 1e-6),
               kPipelineWidth);
  if (!one.has_devices) {
    return print_fitted(
        formatted("%-*s no bubble: the stages take turns on one device\n", width, ""),
        kPipelineWidth);
  }
  print_fitted(
      formatted("%-*s bubble %.1f %% of the most work, ideal %.1f %%: %.1f %% of a step "
                "above it%s; transfers exposed %.3f ms; of %d ways %d over NCCL\n",
                width, "", one.bubble() * 100, one.ideal() * 100, one.above_ideal() * 100,
                one.above_ideal() > PipelineTimes::kMostAboveIdeal ? ", MORE THAN 5 %" : "",
                one.exposed() * 1e3, one.ways.all, one.ways.over_library),
      kPipelineWidth);
}

boost::json::object to_json(const ExpertTimes& one) {
  if (!one.not_run.empty()) return {{"mode", one.mode}, {"not_run", one.not_run}};
  boost::json::object row{
      {"mode", one.mode}, {"step_seconds", one.step}, {"exchange", to_json(one.exchange)}};
  if (one.exposed) {
    row["exposed_seconds"] = *one.exposed;
    row["exposed_share"] = *one.exposed_share();
  }
  if (const auto share = one.of_library()) row["of_library"] = *share;
  return row;
}

void print_experts(const ExpertTimes& one) {
  const int width = kExpertsWidth - 1;
  if (!one.not_run.empty()) {
    return print_fitted(
        formatted("%-*s not run: %s\n", width, one.mode.c_str(), one.not_run.c_str()),
        kExpertsWidth);
  }
  const std::string exposed =
      one.exposed ? formatted("; compute waits %.3f ms for the exchange, %.1f %% of the step",
                              *one.exposed * 1e3, *one.exposed_share() * 100)
                  : "; waits for the exchange are not timed here";
  print_fitted(
      formatted("%-*s %9.3f ms/step%s\n", width, one.mode.c_str(), one.step * 1e3, exposed.c_str()),
      kExpertsWidth);
  print_exchange("exchange of rows", one.exchange);
  const auto share = one.of_library();
  print_fitted(
      share ? formatted("%-*s %.0f %% of the rate of bare calls%s\n", width, "", *share * 100,
                        *share < ExpertTimes::kLeastOfLibrary ? ", LESS THAN 85 %" : "")
            : formatted("%-*s no rate beside it: no library exchanges here\n", width, ""),
      kExpertsWidth);
}

// What only some steps do would stand in the time of some.
Scenario of_equal_steps(Scenario s) {
  s.training.recapture_at.clear();
  s.training.resume_at.clear();
  s.training.change_microbatches_at.clear();
  s.training.eval_every = 0;
  s.cuda_graph.evaluation = GraphEvaluation::eager;
  s.checker.delays.clear();
  s.expect = {};
  return s;
}

}  // namespace

void bench_pipeline(const Scenario& scenario, const Options& options, const std::string& device,
                    BenchRows& rows) {
  Scenario s = of_equal_steps(scenario);
  s.parallel = {};
  s.parallel.pipeline = options.number("ranks") > 0 ? options.number("ranks") : 2;
  bench_ranks({"pipeline", kPipelineWidth}, s, options, device, rows,
              [&](const Scenario& one, const LocalRanks& ranks, const AddRow& add) {
                time_pipeline(one, device, ranks, options.text("only"), options.seconds("budget"),
                              [&](const PipelineTimes& times) {
                                print_pipeline(times), add(to_json(times));
                              });
              });
}

void bench_experts(const Scenario& scenario, const Options& options, const std::string& device,
                   BenchRows& rows) {
  const Scenario s = with_experts_over(of_equal_steps(scenario), ranks_asked_for(options, device));
  bench_ranks({"experts", kExpertsWidth}, s, options, device, rows,
              [&](const Scenario& one, const LocalRanks& ranks, const AddRow& add) {
                time_experts(
                    one, device, ranks, options.text("only"), options.seconds("budget"),
                    [&](const ExpertTimes& times) { print_experts(times), add(to_json(times)); });
              });
}

}  // namespace lockstep
