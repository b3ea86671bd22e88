// Near-legal: rules on the model, the data, training and graphs.
#include <cstddef>

#include "harness/generate/invalid_table.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostLayers = 128;  // model.pattern.

// Uses the default settings, drop-and-pad, so that one rule is broken and not two. False if the
// pattern has no room for a layer more.
bool add_experts(Scenario& s) {
  if (std::ssize(s.model.pattern) == kMostLayers) return false;
  s.model.pattern += 'E';
  s.model.moe = {};
  s.offload = {};            // Other modules may cut a region where offloading is not legal,
  s.checker.delays.clear();  // and then there is no stream to delay.
  s.fsdp.unit = {1};         // One block more.
  s.fsdp.unit_is_list = false;
  s.fsdp.persist_buf_on_alloc_fail = true;
  return true;
}

bool lists_documents(const Scenario& s) { return s.data.kind == DataKind::lengths; }
MicrobatchLengths& first_list(Scenario& s) { return s.data.documents.front().front(); }

constexpr InvalidEdit kEdits[] = {
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
       s.numerics = {Numerics::fp32};
       s.model.core_attention = CoreAttention::cudnn;
       return true;
     }},
    {"L06",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       s.model.moe.top_k = s.model.moe.experts + 1;
       return true;
     }},
    {"L06",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       s.model.moe.expert_bias = true;
       return s.model.moe.router == Router::softmax;
     }},
    {"L07",
     [](Scenario& s, Choices& c) {
       if (!lists_documents(s) || first_list(s).empty() ||
           s.data.long_documents != LongDocuments::error)
         return false;
       at(first_list(s), c.draw(first_list(s).size())) = s.data.pack_length + c.between(1, 9);
       fit_any_capacity(s);
       return true;
     }},
    {"L08",
     [](Scenario& s, Choices&) {
       if (!lists_documents(s)) return false;
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
       s.data.mask.microbatches = {(most_microbatches(s.training) + c.between(0, 5)) *
                                   s.parallel.data};
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
       if (depth_follows(s)) return false;
       s.training.in_flight = s.training.microbatches + c.between(1, 3);
       s.cuda_graph.capture_passes = 0;  // L43
       return true;
     }},
    {"L14",
     [](Scenario& s, Choices& c) {
       if (c.one_in(2)) {
         s.training.recapture_at = {s.training.steps};
       } else {
         // Added after the last step and beside the existing changes, which may provide the only
         // microbatch with a target.
         s.training.change_microbatches_at.push_back(
             {s.training.steps, s.training.microbatches_at(s.training.steps)});
       }
       return true;
     }},
    {"L15",
     [](Scenario& s, Choices& c) {
       if (partial(s)) return false;
       s.cuda_graph.modules = {
           c.pick<GraphModule>({GraphModule::attn, GraphModule::mlp, GraphModule::mamba})};
       return true;
     }},
    {"L16",
     [](Scenario& s, Choices&) {
       const char absent = !has(s, 'M') ? 'M' : !has(s, 'E') ? 'E' : !has(s, '-') ? '-' : '*';
       s.cuda_graph.modules = {absent == 'M'   ? GraphModule::mamba
                               : absent == 'E' ? GraphModule::moe
                               : absent == '-' ? GraphModule::mlp
                                               : GraphModule::attn};
       return partial(s) && !has(s, absent);
     }},
    {"L17",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       s.cuda_graph.modules = {GraphModule::moe, GraphModule::moe_router};
       return partial(s);
     }},
    {"L18",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       s.cuda_graph.modules = {GraphModule::moe_preprocess};
       return partial(s);
     }},
    {"L19",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       s.cuda_graph.modules.clear();
       s.model.moe.pad_to_capacity = false;
       s.model.moe.host_sync = true;
       return graphs(s);
     }},
    {"L20",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       s.cuda_graph.modules = {GraphModule::moe_router, GraphModule::moe_preprocess};
       s.model.moe.pad_to_capacity = false;
       return partial(s);
     }},
    {"L21",
     [](Scenario& s, Choices&) {
       if (!add_experts(s)) return false;
       std::erase(s.cuda_graph.modules, GraphModule::moe_preprocess);  // L20 would refuse it too.
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
       s.cuda_graph.capture_passes = 0;  // L43
       return graphs(s);
     }},
};

}  // namespace

std::span<const InvalidEdit> training_edits() { return kEdits; }

}  // namespace lockstep
