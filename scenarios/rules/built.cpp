// L00: features of schema 1 that this build lacks. When a feature arrives, its `built` becomes
// true.
#include <algorithm>

#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

struct FeatureRow {
  const char* key;
  const char* value;  // The value that asks for the feature; "" if the key alone does.
  bool built;
  const char* nearest;
  bool (*asked)(const Scenario&);
};

template <Numerics precision>
bool lists(const Scenario& scenario) {
  return holds(scenario.numerics, precision);
}

template <char symbol>
bool has(const Scenario& scenario) {
  return has_layer(scenario, symbol);
}

template <Transport transport>
bool goes_over(const Scenario& scenario) {
  return scenario.parallel.transport == transport;
}

template <Poison poison>
bool poisons(const Scenario& scenario) {
  return holds(scenario.checker.poison, poison);
}

// The scenario lists fp8, and asks for that too.
template <auto asked>
bool in_fp8(const Scenario& scenario) {
  return holds(scenario.numerics, Numerics::fp8) && asked(scenario);
}

// The scenario has several chunks, and asks for that too.
template <auto asked>
bool with_chunks(const Scenario& scenario) {
  return scenario.parallel.chunks > 1 && asked(scenario);
}

// The scenario has several pipeline stages, and asks for that too.
template <auto asked>
bool with_stages(const Scenario& scenario) {
  return scenario.parallel.pipeline > 1 && asked(scenario);
}

bool resumes_within_a_step(const Scenario& scenario) {
  return std::ranges::any_of(scenario.training.resume_at,
                             [](const Scenario::Resume& one) { return one.microbatch > 0; });
}

constexpr const char* kPrecision = "numerics";
constexpr auto kFeatures = std::to_array<FeatureRow>({
    {kPrecision, "fp32", true, "", lists<Numerics::fp32>},
    {kPrecision, "bf16", true, "[fp32]", lists<Numerics::bf16>},
    {kPrecision, "fp8", true, "[fp32]", lists<Numerics::fp8>},
    {"model.pattern", "M", true, "", has<'M'>},
    {"model.pattern", "*", true, "", has<'*'>},
    {"model.pattern", "-", true, "", has<'-'>},
    {"model.pattern", "E", true, "", has<'E'>},
    {"model.recompute", "", true, "[]",
     [](const Scenario& s) { return !s.model.recompute.empty(); }},
    {"model.core_attention", "cudnn", true, "",
     [](const Scenario& s) { return s.model.core_attention == CoreAttention::cudnn; }},
    {"cuda_graph.impl", "partial", true, "", with_partial_graphs},
    {"cuda_graph.impl", "full_iteration", true, "",
     [](const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }},
    {"cuda_graph.graph_memory_limit", "", true, "0",
     [](const Scenario& s) { return with_graphs(s) && s.cuda_graph.graph_memory_limit > 0; }},
    {"offload.modules", "", true, "[]", with_offload},
    {"fsdp.strategy", "", true, "no_shard", with_sharding},
    {"fsdp.reduction", "nccl", true, "",
     [](const Scenario& s) { return with_reduction(s) && s.fsdp.reduction == Reduction::nccl; }},
    {"fsdp.nccl_ub", "", false, "false", [](const Scenario& s) { return s.fsdp.nccl_ub; }},
    {"parallel.data", "", true, "1", [](const Scenario& s) { return s.parallel.data > 1; }},
    {"parallel.context", "", false, "1", [](const Scenario& s) { return s.parallel.context > 1; }},
    {"parallel.tensor", "", false, "1", [](const Scenario& s) { return s.parallel.tensor > 1; }},
    {"parallel.expert", "", true, "1", [](const Scenario& s) { return s.parallel.expert > 1; }},
    {"parallel.pipeline", "", true, "1", [](const Scenario& s) { return s.parallel.pipeline > 1; }},
    {"parallel.pipeline", "with cuda_graph.impl full_iteration", true, "1",
     with_stages<[](const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }>},
    {"parallel.pipeline", "with cuda_graph.graph_memory_limit", true, "1",
     with_stages<[](const Scenario& s) {
       return with_graphs(s) && s.cuda_graph.graph_memory_limit != 0;
     }>},
    {"parallel.pipeline", "with cuda_graph.shared_memory", true, "1",
     with_stages<[](const Scenario& s) { return s.cuda_graph.shared_memory; }>},
    {"parallel.pipeline", "with fsdp.reduction nccl", true, "1", with_stages<[](const Scenario& s) {
       return with_reduction(s) && s.fsdp.reduction == Reduction::nccl;
     }>},
    {"parallel.pipeline", "with parallel.chunks and training.resume_at within a step", true, "1",
     with_stages<[](const Scenario& s) {
       return s.parallel.chunks != 1 && resumes_within_a_step(s);
     }>},
    {"parallel.chunks", "", true, "1", [](const Scenario& s) { return s.parallel.chunks > 1; }},
    {"parallel.chunks", "with cuda_graph.impl full_iteration", true, "1",
     with_chunks<[](const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }>},
    {"parallel.chunks", "with cuda_graph.graph_memory_limit", true, "1",
     with_chunks<[](const Scenario& s) {
       return with_graphs(s) && s.cuda_graph.graph_memory_limit != 0;
     }>},
    {"parallel.chunks", "with cuda_graph.shared_memory", true, "1",
     with_chunks<[](const Scenario& s) { return s.cuda_graph.shared_memory; }>},
    {"parallel.schedule", "gpipe", true, "1f1b",
     [](const Scenario& s) { return s.parallel.schedule == PipelineSchedule::gpipe; }},
    {"parallel.transport", "shm", true, "auto", goes_over<Transport::shm>},
    {"parallel.transport", "nccl", true, "", goes_over<Transport::nccl>},
    {"checker.poison", "padding", true, "", poisons<Poison::padding>},
    {"checker.poison", "staging", true, "", poisons<Poison::staging>},
    {"checker.delays", "", true, "", [](const Scenario& s) { return !s.checker.delays.empty(); }},
    {"model.pattern", "E in fp8", true, "",
     in_fp8<[](const Scenario& s) { return has_layer(s, 'E'); }>},
    {"fp8.recipe", "delayed", true, "current",
     in_fp8<[](const Scenario& s) { return s.fp8.recipe == Fp8Recipe::delayed; }>},
});

std::string name_of(const FeatureRow& row) {
  return std::string(row.key) + (*row.value == '\0' ? "" : std::string(": ") + row.value);
}

// Rule L00 is a table of features, not a single check.
Findings checked_by_feature(const Scenario&) { return {}; }

}  // namespace

std::span<const Rule> built_rules() {
  static constexpr Rule kRules[] = {
      {"L00", "not built yet: the key is named",
       "legal, but this build cannot run it (describe --built lists what it can); looked for after "
       "all other rules",
       checked_by_feature,
       "fsdp.nccl_ub parallel.context parallel.tensor parallel.expert parallel.pipeline "
       "parallel.chunks",
       "parallel: {tensor: 2}"},
  };
  return kRules;
}

std::vector<ScenarioError> check_built(const Scenario& scenario) {
  std::vector<ScenarioError> errors;
  for (const FeatureRow& row : kFeatures) {
    if (row.built || !row.asked(scenario)) continue;
    errors.push_back({"L00", "", 0, 0, row.key, "not built yet: " + name_of(row),
                      "legal, but this build cannot run it (describe --built lists what it can)",
                      row.nearest});
  }
  return errors;
}

std::vector<Feature> features() {
  std::vector<Feature> list;
  for (const FeatureRow& row : kFeatures) list.push_back({name_of(row), row.built});
  return list;
}

}  // namespace lockstep
