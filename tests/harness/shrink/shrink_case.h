// The tests of the shrinker share these helpers: runners with a bug, planted faults with the first
// generated scenario that shows each, and lists of what a shrunk scenario still has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "harness/generate/generator.h"
#include "harness/run/worker.h"
#include "harness/shrink/reason.h"
#include "harness/shrink/rules.h"
#include "harness/shrink/shrink.h"
#include "scenarios/documents/documents.h"
#include "scenarios/io/reader.h"

namespace lockstep {

inline constexpr WorkerOptions kShrinkWorker{.fork = true, .timeout_s = 60};

struct FoundCase {
  Scenario scenario;
  int scenarios = 0;  // Tried until one failed; 0 if none did.
};

inline constexpr int kMostScenarios = 400;

// A failure counts only where the same scenario holds without the fault.
inline FoundCase find_failure(const RunOptions& run, std::uint64_t first_seed) {
  for (int i = 0; i < kMostScenarios; ++i) {
    Choices choices(first_seed + static_cast<std::uint64_t>(i));
    Scenario scenario = generate_scenario(choices);
    if (run_in_worker(scenario, run, kShrinkWorker).verdict == Verdict::holds) continue;
    if (run_in_worker(scenario, {}, kShrinkWorker).verdict != Verdict::holds) continue;
    return {std::move(scenario), i + 1};
  }
  return {};
}

// An activation that differs.
inline CaseResult failure(const Scenario& scenario, const std::string& tensor) {
  CaseResult result = unjudged_case(scenario, {});
  result.verdict = Verdict::violated;
  result.judge = JudgeKind::activation;
  result.reason = tensor + " differs from the oracle's";
  result.first_difference = FirstDifference{};
  result.first_difference->tensor = tensor;
  return result;
}

using Bug = std::function<bool(const Scenario&)>;

// A runner with a bug in the tensor "layers.N.act".
inline ShrinkOptions with_bug(const Bug& bug) {
  ShrinkOptions options;
  options.runner = [bug](const Scenario& scenario, const RunOptions& run, double) {
    return bug(scenario)
               ? failure(scenario,
                         "layers." + std::to_string(scenario.model.pattern.size() - 1) + ".act")
               : unjudged_case(scenario, run);
  };
  return options;
}

inline Scenario generated(std::uint64_t seed, RareSize rare = RareSize::none,
                          const Outside& outside = {}) {
  Choices choices(seed);
  return generate_scenario(choices, rare, outside);
}

inline bool has_length(const Scenario& scenario, std::int64_t least) {
  for (const StepLengths& step : scenario.data.documents) {
    for (const MicrobatchLengths& list : step) {
      for (const std::int64_t length : list) {
        if (length >= least) return true;
      }
    }
  }
  return false;
}

inline std::int64_t documents_in(const Scenario& scenario) {
  return documents_in(scenario.data.documents);
}

// The contents of graphs: kinds of layers captured, or one for a whole iteration.
inline int graph_modules_in(const Scenario& s) {
  if (s.cuda_graph.impl == GraphImpl::none) return 0;
  if (s.cuda_graph.impl == GraphImpl::full_iteration) return 1;
  if (!s.cuda_graph.modules.empty()) return static_cast<int>(s.cuda_graph.modules.size());
  int kinds = 0;
  for (const char symbol : {'M', '*', '-', 'E'})
    kinds += s.model.pattern.find(symbol) != std::string::npos;
  return kinds;
}

// Switches that are on beyond the defaults, besides graphs. Sizes are none.
inline std::vector<std::string> further_features_in(const Scenario& s) {
  const Scenario plain;
  const Scenario::Training::Optimizer& o = s.training.optimizer;
  const Scenario::Training::Optimizer& d = plain.training.optimizer;
  std::vector<std::string> list;
  const auto note = [&](const char* feature, bool on) {
    if (on) list.emplace_back(feature);
  };
  note("dropout", s.model.dropout.millionths > 0);
  note("tied embedding", s.model.tied_embedding);
  note("swiglu", s.model.mlp.activation != plain.model.mlp.activation);
  note("mask", s.data.mask.prefix > 0 || s.data.mask.rate.millionths > 0 ||
                   !s.data.mask.microbatches.empty());
  note("gaps", s.data.gaps > 0);
  note("align", s.data.align > 1);
  note("tail", s.data.tail != plain.data.tail);
  note("optimizer", o.schedule != d.schedule || o.lr_warmup != d.lr_warmup || o.clip != d.clip ||
                        o.min_lr != d.min_lr || o.weight_decay != d.weight_decay || o.lr != d.lr ||
                        o.beta1 != d.beta1 || o.beta2 != d.beta2 || o.eps != d.eps);
  note("constants", s.model.norm_eps != plain.model.norm_eps ||
                        s.model.attention.rope_base != plain.model.attention.rope_base);
  note("drawn lengths", s.data.kind != plain.data.kind);
  note("truncation", s.data.long_documents != plain.data.long_documents);
  note("evaluation", s.training.eval_every > 0);
  note("recapture", !s.training.recapture_at.empty());
  note("resumed", !s.training.resume_at.empty());
  note("changing microbatches", !s.training.change_microbatches_at.empty());
  note("buckets", s.cuda_graph.max_packed_seqs.size() > 1);
  note("captured copies", s.offload.captured);
  note("delta of offloading", s.offload.delta_bytes > 0);
  note("passes of captures", s.cuda_graph.capture_passes > 0);
  note("shared memory", s.cuda_graph.shared_memory);
  note("in flight", s.training.in_flight > plain.training.in_flight);
  note("chunks", s.parallel.chunks > 1);
  note("stages",
       s.parallel.pipeline > 1 && s.offload.delta_bytes == 0);  // delta_bytes needs stages.
  note("experts apart", s.parallel.expert > 1);
  note("gpipe", s.parallel.schedule == PipelineSchedule::gpipe);
  bool fallback = false, empty = false;
  for (const StepLengths& step :
       s.data.kind == DataKind::lengths ? s.data.documents : std::vector<StepLengths>{}) {
    for (const MicrobatchLengths& lengths : step) {
      fallback |= s.cuda_graph.impl != GraphImpl::none &&
                  std::ssize(lengths) > s.cuda_graph.max_packed_seqs.back();
      empty |= std::count(lengths.begin(), lengths.end(), 0) > 0;
    }
  }
  note("fallback", fallback);
  note("empty document", empty);
  return list;
}

inline void expect_equal_failure(const CaseResult& got, const CaseResult& want,
                                 const std::string& what) {
  EXPECT_EQ(got.verdict, want.verdict) << what;
  EXPECT_EQ(got.judge, want.judge) << what;
  EXPECT_EQ(got.reason, want.reason) << what;
  EXPECT_EQ(got.first_difference, want.first_difference) << what;
  EXPECT_EQ(got.token, want.token) << what;
}

// Shrinks and replays one fault, and prints a row of the table. `seconds` is the budget of the
// shrinking.
inline void shrinks_and_replays(const std::string& fault, const FoundCase& found, double seconds) {
  SCOPED_TRACE(fault);
  const RunOptions run{.device = "sim", .planted = {.engine = fault}};
  ShrinkOptions options;
  options.run = run;
  options.seconds = seconds;
  const Shrunk shrunk = shrink(found.scenario, options);
  ASSERT_NE(shrunk.first.verdict, Verdict::holds);
  const Scenario& s = shrunk.scenario;
  const std::vector<std::string> features = further_features_in(s);
  std::string named;
  for (const std::string& feature : features) named += (named.empty() ? "" : "+") + feature;
  std::printf(
      "| %s | %d | %s | %lld | %.1f | %lld -> %lld | \"%s\" -> \"%s\" | %d | %s | %d/%d |\n",
      fault.c_str(), found.scenarios, reason_name(shrunk.result).c_str(),
      static_cast<long long>(shrunk.runs), shrunk.seconds,
      static_cast<long long>(documents_in(found.scenario)), static_cast<long long>(documents_in(s)),
      found.scenario.model.pattern.c_str(), s.model.pattern.c_str(), graph_modules_in(s),
      named.c_str(), shrunk.failed, shrunk.of);
  std::fflush(stdout);

  EXPECT_TRUE(shrunk.finished) << shrunk.seconds << " s, " << shrunk.runs << " runs";
  EXPECT_LE(documents_in(s), 3) << to_yaml(s);
  EXPECT_LE(graph_modules_in(s), 1) << to_yaml(s);
  EXPECT_LE(features.size(), 1u) << to_yaml(s);
  EXPECT_TRUE(same_reason(shrunk.result, shrunk.first))
      << shrunk.result.reason << " | " << shrunk.first.reason;

  expect_equal_failure(run_in_worker(read_token(shrunk.result.token), run, kShrinkWorker),
                       shrunk.result, "token");
  const std::string text = shrunk_yaml(shrunk);
  const ReadResult read = read_scenario_text(text, "scenarios/regressions/shrunk.yaml");
  ASSERT_TRUE(read.ok()) << read.errors.front().text() << "\n" << text;
  EXPECT_EQ(canonical_form(read.scenario), canonical_form(s));
  expect_equal_failure(run_in_worker(read.scenario, run, kShrinkWorker), shrunk.result, "file");

  const CaseResult mended = run_in_worker(read.scenario, {}, kShrinkWorker);
  EXPECT_EQ(mended.verdict, Verdict::holds) << mended.reason << "\n" << text;
}

}  // namespace lockstep
