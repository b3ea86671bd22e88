#include "harness/judge/oracle_time.h"

#include <algorithm>
#include <ctime>

#include "harness/expect/parameter_table.h"
#include "harness/expect/run_estimate.h"
#include "oracle/oracle.h"

namespace lockstep {
namespace {

constexpr int kRuns = 3;  // The fastest step counts: the first one finds cold caches.

// One step of one microbatch with each kind of layer of `scenario` once, `times` as wide.
Scenario probe(const Scenario& scenario, std::int64_t times) {
  Scenario s;
  s.model.pattern.clear();
  for (const char symbol : scenario.model.pattern) {
    if (s.model.pattern.find(symbol) == std::string::npos) s.model.pattern += symbol;
  }
  s.model.hidden *= times;
  s.model.vocab *= times;
  s.model.attention.heads *= times;
  s.model.mamba.d_inner *= times;
  s.model.mlp.hidden *= times;
  s.model.moe.hidden *= times;
  s.data.documents = {{{17, 47}}};
  s.training.steps = s.training.microbatches = s.training.in_flight = 1;
  return s;
}

// What this process has used of its cores: others share the machine.
double core_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double seconds_of(const Scenario& scenario, Numerics numerics) {
  const auto source = open_data(scenario);
  const StepData data = source->training(0);
  double fastest = 0;
  // Its weights are drawn once, which takes as long as a step.
  Scenario steps = scenario;
  steps.training.steps = kRuns;
  oracle::Oracle oracle(steps, {.numerics = numerics, .mutation = ""});
  for (int run = 0; run < kRuns; ++run) {
    const double begin = core_seconds();
    oracle.step(run, data);
    const double took = core_seconds() - begin;
    fastest = run == 0 ? took : std::min(fastest, took);
  }
  return fastest;
}

}  // namespace

OracleWork oracle_work(const Scenario& scenario) {
  double parameters = 0;
  for (const ParameterShape& one : parameter_table(scenario))
    parameters += static_cast<double>(one.rows) * static_cast<double>(one.cols);
  return {.multiply_adds = estimate_run(scenario).multiply_adds,
          .elements = static_cast<double>(activation_elements(scenario)) *
                          microbatches_of_a_rank(scenario) *
                          static_cast<double>(scenario.parallel.data) +
                      parameters * static_cast<double>(scenario.training.steps)};
}

OracleRate rate_of(const OracleWork& small, double small_seconds, const OracleWork& wide,
                   double wide_seconds) {
  const double determinant =
      small.multiply_adds * wide.elements - wide.multiply_adds * small.elements;
  OracleRate rate{
      .per_multiply_add =
          (small_seconds * wide.elements - wide_seconds * small.elements) / determinant,
      .per_element =
          (small.multiply_adds * wide_seconds - wide.multiply_adds * small_seconds) / determinant};
  if (rate.per_element < 0) rate = {wide_seconds / wide.multiply_adds, 0};
  if (rate.per_multiply_add < 0) rate = {0, wide_seconds / wide.elements};
  return rate;
}

OracleRate measure_oracle(const Scenario& scenario, Numerics numerics) {
  const Scenario small = probe(scenario, 1), wide = probe(scenario, 8);
  return rate_of(oracle_work(small), seconds_of(small, numerics), oracle_work(wide),
                 seconds_of(wide, numerics));
}

}  // namespace lockstep
