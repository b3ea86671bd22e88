#include "harness/campaign_breakers.h"

#include <algorithm>

#include "kernels/require.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

// Edits a legal scenario so that one rule refuses it; false where this one has not what the edit needs.
struct Breaker {
  const char* rule;
  bool (*breaks)(Scenario&, Choices&);
};

bool has(const Scenario& s, char symbol) { return s.model.pattern.find(symbol) != std::string::npos; }
bool partial(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::partial; }
bool full(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }
bool graphs(const Scenario& s) { return s.cuda_graph.impl != GraphImpl::none; }

void fit_any_capacity(Scenario& s) { s.cuda_graph.max_packed_seqs = {4096}; }

void add_experts(Scenario& s) { s.model.pattern += 'E'; }

// Offload of these, legal as far as warm-up and joins go.
bool offload(Scenario& s, std::vector<OffloadModule> modules) {
  if (graphs(s) && s.cuda_graph.warmup_steps == 0) return false;
  s.offload.modules = std::move(modules);
  s.offload.max_inflight = 1;
  return true;
}

bool blocks_differ(const Scenario& s) {
  const auto blocks = s.blocks();
  const auto has_mlp = [&](const Scenario::Block& block) {
    return s.model.pattern.substr(block.first, block.count).find('-') != std::string::npos;
  };
  return std::any_of(blocks.begin(), blocks.end(), has_mlp) && !std::all_of(blocks.begin(), blocks.end(), has_mlp);
}

MicrobatchLengths& first_list(Scenario& s) { return s.data.documents.front().front(); }

constexpr Breaker kBreakers[] = {
    {"L00",
     [](Scenario& s, Choices&) {
       if (full(s)) return false;  // Several ranks would be L37.
       s.parallel.tensor = 2;
       return true;
     }},
    {"L01",
     [](Scenario& s, Choices&) {
       s.model.attention.heads = 3;
       s.model.attention.kv_heads = 2;
       return has(s, '*');
     }},
    {"L02",
     [](Scenario& s, Choices& c) {
       if (!has(s, 'M')) return false;
       if (c.one_in(2) && s.model.mamba.head_dim > 1) {
         ++s.model.mamba.d_inner;
       } else {
         s.model.mamba.groups = s.model.mamba.d_inner / s.model.mamba.head_dim + 1;
       }
       return true;
     }},
    {"L03",
     [](Scenario& s, Choices& c) {
       s.numerics = {Numerics::bf16};
       s.model.hidden = 8 * c.between(0, 3) + c.between(1, 7);
       return true;
     }},
    {"L05",
     [](Scenario& s, Choices&) {
       s.model.core_attention = CoreAttention::cudnn;
       return true;
     }},
    {"L06",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.model.moe.top_k = s.model.moe.experts + 1;
       return true;
     }},
    {"L06",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.model.moe.expert_bias = true;
       return s.model.moe.router == Router::softmax;
     }},
    {"L07",
     [](Scenario& s, Choices& c) {
       if (first_list(s).empty()) return false;
       first_list(s)[static_cast<std::size_t>(c.draw(first_list(s).size()))] = s.data.pack_length + c.between(1, 9);
       fit_any_capacity(s);
       return true;
     }},
    {"L08",
     [](Scenario& s, Choices&) {
       first_list(s).push_back(s.data.pack_length);
       first_list(s).push_back(1);
       fit_any_capacity(s);
       return true;
     }},
    {"L09",
     [](Scenario& s, Choices&) {
       s.data.long_documents = LongDocuments::split;
       return true;
     }},
    {"L11",
     [](Scenario& s, Choices& c) {
       s.data.mask.microbatches = {c.between(4, 9)};
       return true;
     }},
    {"L12",
     [](Scenario& s, Choices& c) {
       if (c.one_in(2)) {
         s.data.mask.prefix = s.data.pack_length;
       } else {
         s.data.mask.rate = Ratio{1'000'000};
       }
       return true;
     }},
    {"L13",
     [](Scenario& s, Choices& c) {
       s.training.in_flight = s.training.microbatches + c.between(1, 3);
       return true;
     }},
    {"L14",
     [](Scenario& s, Choices& c) {
       if (c.one_in(2)) {
         s.training.recapture_at = {s.training.steps};
       } else {
         // After the last step, beside the changes that are there: they may bring the only microbatch with a target.
         s.training.change_microbatches_at.push_back({s.training.steps, s.training.microbatches_at(s.training.steps)});
       }
       return true;
     }},
    {"L15",
     [](Scenario& s, Choices& c) {
       if (partial(s)) return false;
       s.cuda_graph.modules = {c.pick<GraphModule>({GraphModule::attn, GraphModule::mlp, GraphModule::mamba})};
       return true;
     }},
    {"L16",
     [](Scenario& s, Choices&) {
       if (!partial(s)) return false;
       s.cuda_graph.modules = {has(s, 'M') ? GraphModule::moe : GraphModule::mamba};
       return true;
     }},
    {"L17",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.cuda_graph.modules = {GraphModule::moe, GraphModule::moe_router};
       return partial(s);
     }},
    {"L18",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.cuda_graph.modules = {GraphModule::moe_preprocess};
       return partial(s);
     }},
    {"L19",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.cuda_graph.modules.clear();
       s.model.moe.pad_to_capacity = false;
       return graphs(s);
     }},
    {"L20",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.cuda_graph.modules = {GraphModule::moe_router, GraphModule::moe_preprocess};
       s.model.moe.pad_to_capacity = false;
       return partial(s);
     }},
    {"L21",
     [](Scenario& s, Choices&) {
       add_experts(s);
       s.model.moe.host_sync = true;
       return true;
     }},
    {"L22",
     [](Scenario& s, Choices&) {
       s.training.recapture_at.clear();
       s.cuda_graph.warmup_steps = s.training.steps;
       return graphs(s);
     }},
    {"L23",
     [](Scenario& s, Choices&) {
       s.cuda_graph.max_packed_seqs = {4096, s.cuda_graph.max_packed_seqs.back()};
       return graphs(s);
     }},
    {"L24",
     [](Scenario& s, Choices& c) {
       if (c.one_in(2)) return offload(s, {OffloadModule::expert_fc1});
       s.model.recompute = {Recompute::moe_act};
       return true;
     }},
    {"L25", [](Scenario& s, Choices&) { return has(s, '*') && offload(s, {OffloadModule::attn_proj}); }},
    {"L26",
     [](Scenario& s, Choices&) {
       s.cuda_graph.modules.clear();
       return partial(s) && has(s, '*') && offload(s, {OffloadModule::attn_norm});
     }},
    {"L27",
     [](Scenario& s, Choices&) {
       s.model.recompute = {Recompute::layernorm};
       return has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
     }},
    {"L28",
     [](Scenario& s, Choices&) {
       s.offload.modules = {OffloadModule::mlp_fc1};
       s.offload.max_inflight = 1;
       return has(s, '-') && graphs(s) && s.cuda_graph.warmup_steps == 0;
     }},
    {"L29",
     [](Scenario& s, Choices&) {
       const bool fits = full(s) && has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
       s.offload.max_inflight = {};
       return fits;
     }},
    {"L30",
     [](Scenario& s, Choices&) {
       s.offload.delay_until_cuda_graph = true;
       return has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
     }},
    {"L31",
     [](Scenario& s, Choices&) {
       if (graphs(s) || !has(s, '-')) return false;
       s.training.steps = 1;
       s.training.eval_every = 0;
       s.training.change_microbatches_at.clear();
       s.training.in_flight = 1;
       s.training.optimizer.lr_warmup = 0;
       s.data.mask = {};
       s.data.documents = {{{2}}};
       s.data.gaps = 0;
       s.data.align = 1;
       return offload(s, {OffloadModule::mlp_fc1});
     }},
    {"L32",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim;
       s.fsdp.double_buffer = false;
       return partial(s);
     }},
    {"L33",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim_grads_params;
       s.fsdp.persist_buf_on_alloc_fail = false;
       s.model.mlp.hidden = 5000;  // No other layer is as large, so that units differ.
       return partial(s) && blocks_differ(s);
     }},
    {"L34",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim_grads_params;
       s.fsdp.persist_buf_on_alloc_fail = false;
       s.fsdp.prefetch = 2;
       return !partial(s);
     }},
    {"L35",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim;
       s.fsdp.unit_is_list = true;
       s.fsdp.unit = {static_cast<std::int64_t>(s.blocks().size()) + 1};
       return true;
     }},
    {"L36",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim;
       s.fsdp.reduction = Reduction::nccl;
       return true;
     }},
    {"L37",
     [](Scenario& s, Choices&) {
       s.parallel.data = 2;
       fit_any_capacity(s);
       return full(s);
     }},
    {"L38",
     [](Scenario& s, Choices& c) {
       s.checker.delays = {{c.pick<DelayStream>({DelayStream::d2h, DelayStream::h2d}), {}, 1}};
       return true;
     }},
    {"L39",
     [](Scenario& s, Choices& c) {
       s.checker.schedule.kind = ScheduleKind::program;
       s.checker.schedule.count = c.between(2, 9);
       return true;
     }},
    {"L40",
     [](Scenario& s, Choices&) {
       s.expect.judge = "loss";
       return true;
     }},
};

// Edits of the YAML text, for what a Scenario cannot hold.
struct TextBreaker {
  const char* rule;
  const char* replace;  // "" = the text goes to the end.
  const char* with;
};
constexpr TextBreaker kTextBreakers[] = {
    {"Y01", "", "# \x01\n"},
    {"Y02", "schema: 1", "schema: &one 1"},
    {"Y03", "", "modle: {hidden: 32}\n"},
    {"Y04", "", "name: twice\n"},
    {"Y05", "schema: 1", "schema: 1.0"},
    {"Y06", "", "parallel: {data: 0}\n"},
    {"Y07", "schema: 1\n", ""},
    {"L10", "data:\n", "data:\n  path: elsewhere\n"},
};

bool break_text(const TextBreaker& breaker, std::string& yaml) {
  const std::string replace = breaker.replace;
  const std::size_t at = replace.empty() ? yaml.size() : yaml.find(replace);
  if (at == std::string::npos) return false;
  yaml.replace(at, replace.size(), breaker.with);
  return true;
}

// Breaker number `which` of both tables; an empty rule where it does not apply.
NearLegal broken_by(std::size_t which, const Scenario& legal, Choices& choices) {
  NearLegal near{"", "", legal};
  if (which < std::size(kBreakers)) {
    if (!kBreakers[which].breaks(near.scenario, choices)) return near;
    near.text = choices.one_in(2) ? canonical_form(near.scenario) : to_yaml(near.scenario);
    near.rule = kBreakers[which].rule;
    return near;
  }
  const TextBreaker& breaker = kTextBreakers[which - std::size(kBreakers)];
  near.text = to_yaml(legal);
  if (break_text(breaker, near.text)) near.rule = breaker.rule;
  return near;
}

}  // namespace

NearLegal break_one_rule(Scenario legal, Choices& choices) {
  constexpr std::size_t kAll = std::size(kBreakers) + std::size(kTextBreakers);
  const std::size_t first = static_cast<std::size_t>(choices.draw(kAll));
  for (std::size_t i = 0; i < kAll; ++i) {
    NearLegal near = broken_by((first + i) % kAll, legal, choices);
    if (!near.rule.empty()) return near;
  }
  require(false, "some rule can be broken in every scenario");
  return {};
}

CaseResult judge_near_legal(const NearLegal& near) {
  CaseResult result;
  result.name = near.scenario.name;
  result.numerics = "-";
  const ReadResult read = read_scenario_text(near.text, near.scenario.name + ".yaml");
  const auto other = std::find_if(read.errors.begin(), read.errors.end(),
                                  [&](const ScenarioError& error) { return error.rule != near.rule; });
  if (!read.ok() && other == read.errors.end()) {
    result.reason = "refused by " + near.rule + ", as it must be";
    return result;
  }
  result.verdict = Verdict::violated;
  result.judge = "refusal";
  result.reason =
      "must be refused by " + near.rule + ", " + (read.ok() ? "but it is legal" : "but also by " + other->text());
  return result;
}

std::vector<std::string> breakable_rules() {
  std::vector<std::string> rules;
  for (const Breaker& breaker : kBreakers) rules.push_back(breaker.rule);
  for (const TextBreaker& breaker : kTextBreakers) rules.push_back(breaker.rule);
  std::sort(rules.begin(), rules.end());
  rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
  return rules;
}

}  // namespace lockstep
