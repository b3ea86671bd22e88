// Fewer symbols of the pattern, smaller widths, fewer steps and microbatches.
#include <algorithm>
#include <cstdint>

#include "harness/shrink/rules.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using Candidates = std::vector<Scenario>;

constexpr const char* kSimplestFirst = "-*ME";

Scenario with_pattern(Scenario s, std::string pattern) {
  s.model.pattern = std::move(pattern);
  return s;
}

Candidates one_symbol(const Scenario& s) {
  Candidates candidates;
  if (s.model.pattern.size() == 1) return {};
  for (const char* symbol = kSimplestFirst; *symbol; ++symbol) {
    if (s.model.pattern.find(*symbol) != std::string::npos)
      candidates.push_back(with_pattern(s, {*symbol}));
  }
  return candidates;
}

// As many layers of one kind, since their number may be what matters.
Candidates one_kind_of_symbol(const Scenario& s) {
  Candidates candidates;
  if (s.model.pattern.size() == 1) return {};
  for (const char* symbol = kSimplestFirst; *symbol; ++symbol) {
    const std::string other(s.model.pattern.size(), *symbol);
    if (s.model.pattern.find(*symbol) != std::string::npos && other != s.model.pattern)
      candidates.push_back(with_pattern(s, other));
  }
  return candidates;
}

Candidates fewer_symbols(const Scenario& s) {
  Candidates candidates;
  for (const auto& [begin, end] : removals(s.model.pattern.size())) {
    std::string left = s.model.pattern;
    left.erase(begin, end - begin);
    if (!left.empty()) candidates.push_back(with_pattern(s, left));
  }
  return candidates;
}

// Each symbol by a simpler one.
Candidates simpler_symbols(const Scenario& s) {
  Candidates candidates;
  for (std::size_t i = 0; i < s.model.pattern.size(); ++i) {
    for (const char* symbol = kSimplestFirst; *symbol && *symbol != s.model.pattern[i]; ++symbol) {
      std::string other = s.model.pattern;
      other[i] = *symbol;
      candidates.push_back(with_pattern(s, other));
    }
  }
  return candidates;
}

std::int64_t at_least_one_of(std::int64_t value, std::int64_t step) {
  return std::max(step, value / step * step);
}
void up_to(std::int64_t& value, std::int64_t step) { value = (value + step - 1) / step * step; }

// Widths that others must divide, those of bf16's rows, slots that there are (rules L01, L02, L03,
// L06).
Scenario fitted(Scenario s) {
  Scenario::Model& m = s.model;
  if (lists_bf16_or_fp8(s)) {
    for (std::int64_t* width :
         {&m.hidden, &m.mamba.d_inner, &m.mlp.hidden, &m.moe.hidden, &m.moe.shared_hidden}) {
      up_to(*width, holds(s.numerics, Numerics::fp8) ? 16 : 8);
    }
    up_to(m.vocab, 8);
    for (std::int64_t* width :
         {&m.attention.head_dim, &m.mamba.head_dim, &m.mamba.state, &m.mamba.chunk}) {
      up_to(*width, 16);
    }
  }
  m.attention.heads = at_least_one_of(m.attention.heads, m.attention.kv_heads);
  m.mamba.d_inner = at_least_one_of(m.mamba.d_inner, m.mamba.head_dim * m.mamba.groups);
  m.moe.top_k = std::min(m.moe.top_k, m.moe.experts);
  return s;
}

Scenario with_size(Scenario s, const Size& size, std::int64_t value) {
  // Fewer heads keep their width: the inner width follows.
  const std::int64_t heads = s.model.mamba.d_inner / s.model.mamba.head_dim;
  size.at(s) = value;
  if (size.key == "model.mamba.head_dim") s.model.mamba.d_inner = heads * value;
  return fitted(std::move(s));
}

Candidates all_least(const Scenario& s) {
  Scenario least = s;
  for (const Size& size : sizes()) {
    if (size.key.rfind("model.", 0) == 0) size.at(least) = size.least;
  }
  Candidates candidates{fitted(least)};
  least.model.hidden = s.model.hidden;
  candidates.push_back(fitted(least));
  return candidates;
}

// The bytes that shrink together with a size, so that there are as many buckets, or groups of
// offloading that stay, as before. Null if there are none.
std::int64_t* bytes_with(Scenario& s, const std::string& key) {
  if (key == "model.vocab") return &s.fsdp.bucket_bytes;
  if (key == "model.hidden") return &s.offload.delta_bytes;
  return nullptr;
}

Candidates smaller_sizes(const Scenario& s, const char* section) {
  Candidates candidates;
  for (const Size& size : sizes()) {
    if (size.key.rfind(section, 0) != 0) continue;
    Scenario here = s;
    const std::int64_t before = size.at(here);
    for (const std::int64_t value : smaller(before, size.least)) {
      candidates.push_back(with_size(s, size, value));
      const std::int64_t* const bytes = bytes_with(here, size.key);
      if (bytes == nullptr || *bytes == 0) continue;
      candidates.push_back(candidates.back());
      *bytes_with(candidates.back(), size.key) = std::max<std::int64_t>(1, *bytes / before * value);
    }
  }
  return candidates;
}

Candidates fewer_steps(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t steps : smaller(s.training.steps, 1)) {
    Scenario one = s;
    if (one.training.optimizer.decay_steps == one.training.steps)
      one.training.optimizer.decay_steps = steps;
    one.training.steps = steps;
    candidates.push_back(one);
    // Resumes keep their distance to the end.
    if (!s.training.resume_at.empty()) {
      candidates.push_back(one);
      for (Scenario::Resume& resume : candidates.back().training.resume_at)
        resume.step = std::max<std::int64_t>(0, resume.step - (s.training.steps - steps));
    }
    // Keeps the number of steps after the warm-up.
    one.cuda_graph.warmup_steps =
        std::max<std::int64_t>(0, s.cuda_graph.warmup_steps - (s.training.steps - steps));
    candidates.push_back(one);
  }
  return candidates;
}

Candidates fewer_microbatches(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t count : smaller(s.training.microbatches, 1)) {
    Scenario one = s;
    one.training.microbatches = count;
    candidates.push_back(one);
  }
  return candidates;
}

Candidates less_in_flight(const Scenario& s) {
  Candidates candidates;
  if (depth_follows(s)) return candidates;
  for (const std::int64_t depth : smaller(s.training.in_flight, 1)) {
    candidates.push_back(s);
    candidates.back().training.in_flight = depth;
  }
  return candidates;
}

}  // namespace

const std::vector<Size>& sizes() {
  static const std::vector<Size> table{
      {"model.hidden", 1, [](Scenario& s) -> std::int64_t& { return s.model.hidden; }},
      {"model.vocab", 2, [](Scenario& s) -> std::int64_t& { return s.model.vocab; }},
      {"model.attention.kv_heads", 1,
       [](Scenario& s) -> std::int64_t& { return s.model.attention.kv_heads; }},
      {"model.attention.heads", 1,
       [](Scenario& s) -> std::int64_t& { return s.model.attention.heads; }},
      {"model.attention.head_dim", 2,
       [](Scenario& s) -> std::int64_t& { return s.model.attention.head_dim; }},
      {"model.mamba.groups", 1, [](Scenario& s) -> std::int64_t& { return s.model.mamba.groups; }},
      {"model.mamba.head_dim", 1,
       [](Scenario& s) -> std::int64_t& { return s.model.mamba.head_dim; }},
      {"model.mamba.d_inner", 1,
       [](Scenario& s) -> std::int64_t& { return s.model.mamba.d_inner; }},
      {"model.mamba.state", 1, [](Scenario& s) -> std::int64_t& { return s.model.mamba.state; }},
      {"model.mamba.conv_width", 1,
       [](Scenario& s) -> std::int64_t& { return s.model.mamba.conv_width; }},
      {"model.mamba.chunk", 1, [](Scenario& s) -> std::int64_t& { return s.model.mamba.chunk; }},
      {"model.mlp.hidden", 1, [](Scenario& s) -> std::int64_t& { return s.model.mlp.hidden; }},
      {"model.moe.experts", 2, [](Scenario& s) -> std::int64_t& { return s.model.moe.experts; }},
      {"model.moe.top_k", 1, [](Scenario& s) -> std::int64_t& { return s.model.moe.top_k; }},
      {"model.moe.hidden", 1, [](Scenario& s) -> std::int64_t& { return s.model.moe.hidden; }},
      {"model.moe.shared_hidden", 0,
       [](Scenario& s) -> std::int64_t& { return s.model.moe.shared_hidden; }},
      {"data.gaps", 0, [](Scenario& s) -> std::int64_t& { return s.data.gaps; }},
      {"data.align", 1, [](Scenario& s) -> std::int64_t& { return s.data.align; }},
      {"data.mask.prefix", 0, [](Scenario& s) -> std::int64_t& { return s.data.mask.prefix; }},
      {"data.pack_length", 1, [](Scenario& s) -> std::int64_t& { return s.data.pack_length; }},
      {"training.steps", 1, [](Scenario& s) -> std::int64_t& { return s.training.steps; }},
      {"training.microbatches", 1,
       [](Scenario& s) -> std::int64_t& { return s.training.microbatches; }},
      {"training.in_flight", 1, [](Scenario& s) -> std::int64_t& { return s.training.in_flight; }},
      {"parallel.chunks", 1, [](Scenario& s) -> std::int64_t& { return s.parallel.chunks; }},
      {"parallel.group", 1, [](Scenario& s) -> std::int64_t& { return s.parallel.group; }},
  };
  return table;
}

std::vector<ShrinkRule> shrink_training_rules() {
  return {{"fewer steps", fewer_steps},
          {"fewer microbatches", fewer_microbatches},
          {"less in flight", less_in_flight}};
}

std::vector<ShrinkRule> shrink_model_rules() {
  return {{"one symbol", one_symbol},
          {"one kind of symbol", one_kind_of_symbol},
          {"fewer symbols", fewer_symbols},
          {"simpler symbols", simpler_symbols},
          {"least widths", all_least},
          {"a smaller width", [](const Scenario& s) { return smaller_sizes(s, "model."); }}};
}

}  // namespace lockstep
