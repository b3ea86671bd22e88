// Graphs, offload, sharding.
#include <algorithm>

#include "harness/megatron/carrier.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"
#include "scenarios/schema/words.h"
#include "scenarios/syntax/nearest.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

template <class Enum>
bool is_word(const std::string& word) {
  return std::find(words<Enum>().begin(), words<Enum>().end(), word) != words<Enum>().end();
}

template <class Enum>
std::vector<std::string> all_words() {
  return {words<Enum>().begin(), words<Enum>().end()};
}

}  // namespace

void Carrier::graphs() {
  for (const char* name :
       {"cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph", "cuda_graph_modules",
        "cuda_graph_scope_deprecated", "cuda_graph_warmup_steps"})
    use(name);
  std::string impl = request_.text("cuda_graph_impl").value_or("none");
  if (request_.flag("enable_cuda_graph")) impl = "local";
  if (request_.flag("external_cuda_graph")) impl = "transformer_engine";
  std::vector<std::string> asked = request_.list("cuda_graph_modules");
  const std::vector<std::string> scope = request_.list("cuda_graph_scope_deprecated");
  asked.insert(asked.end(), scope.begin(), scope.end());
  const bool whole = std::find(asked.begin(), asked.end(), "full_iteration") != asked.end();
  if (impl == "local" && whole) impl = "full_iteration";  // In older versions.
  graphs_ = impl != "none";
  if (impl != "none" && impl != "full_iteration" && impl != "local" && impl != "transformer_engine")
    request_.fail(
        "cuda_graph_impl",
        "is " + shown(impl) + ", and not none, local, transformer_engine or full_iteration");
  set("cuda_graph.impl",
      !graphs_                   ? "none"
      : impl == "full_iteration" ? impl
                                 : "partial",
      "cuda_graph_impl");
  if (!graphs_) {
    for (const char* field : {"cuda_graph_modules", "cuda_graph_scope_deprecated"})
      idle(field, "--cuda-graph-impl");
    return;
  }
  if (impl != "full_iteration") {
    result_.machinery.push_back(
        {"cuda_graph_impl", impl,
         "cuda_graph.impl: partial stands for local and transformer_engine alike"});
    std::vector<std::string> modules, without_layer;
    for (const std::string& word : asked) {
      if (word == "full" || word == "full_iteration") continue;
      // Without its modules, a scenario captures whole layers, which is more than was asked for.
      if (!is_word<GraphModule>(word)) {
        const bool in_scope = std::find(scope.begin(), scope.end(), word) != scope.end();
        request_.fail(in_scope ? "cuda_graph_scope_deprecated" : "cuda_graph_modules",
                      "has " + shown(word) + ", and modules are " +
                          yaml_list(all_words<GraphModule>()) + ", full_iteration" +
                          nearest_hint(word, all_words<GraphModule>()));
      }
      (has_symbol(layer_of(value_of<GraphModule>(word))) ? modules : without_layer).push_back(word);
    }
    if (!without_layer.empty()) {
      change("cuda_graph.modules", yaml_list(asked), modules.empty() ? "none" : yaml_list(modules),
             yaml_list(without_layer) + " has no layer in this model" +
                 (modules.empty() ? ": nothing asked for can be captured here" : ""));
    }
    if (!without_layer.empty() && modules.empty()) {
      graphs_ = false;
      set("cuda_graph.impl", "none");
      return;
    }
    set("cuda_graph.modules", yaml_list(modules), "cuda_graph_modules");
  }
  warmup_ =
      set_sized("cuda_graph.warmup_steps", request_.integer("cuda_graph_warmup_steps").value_or(3),
                2, "cuda_graph_warmup_steps");
}

void Carrier::offload() {
  for (const char* name :
       {"fine_grained_activation_offloading", "offload_modules", "min_offloaded_tensor_size",
        "activation_offload_fraction", "fine_grained_offloading_max_inflight_offloads",
        "delay_offload_until_cuda_graph", "delta_offload_bytes_across_pp_ranks"})
    use(name);
  if (!request_.flag("fine_grained_activation_offloading")) {
    for (const char* field :
         {"offload_modules", "min_offloaded_tensor_size", "activation_offload_fraction",
          "delay_offload_until_cuda_graph", "delta_offload_bytes_across_pp_ranks"})
      idle(field, "--fine-grained-activation-offloading");
    return;
  }
  std::vector<std::string> modules, refused;
  const std::vector<std::string> asked = request_.list("offload_modules");
  const bool keeps_input = std::find(asked.begin(), asked.end(), "core_attn") != asked.end();
  for (const std::string& word : asked) {
    if (!is_word<OffloadModule>(word)) {
      result_.machinery.push_back(
          {"offload_modules", shown(word),
           "no such module here" + nearest_hint(word, all_words<OffloadModule>())});
    } else if (std::any_of(pattern_.begin(), pattern_.end(),
                           [&](char symbol) {
                             return has_module(symbol, value_of<OffloadModule>(word));
                           }) &&
               (word != "attn_proj" || keeps_input)) {
      modules.push_back(word);
    } else {
      refused.push_back(word);
    }
  }
  offload_ = !modules.empty();
  if (!refused.empty()) {
    change("offload.modules", yaml_list(asked), offload_ ? yaml_list(modules) : "none",
           std::string(offload_ ? "" : "nothing asked for can be offloaded here: ") +
               yaml_list(refused) + " has no layer in this model [L24], or is attn_proj without " +
               "core_attn [L25]");
  }
  if (!offload_) return;
  set("offload.modules", yaml_list(modules), "offload_modules");
  const std::int64_t elements = request_.integer("min_offloaded_tensor_size").value_or(1048576);
  set_sized("offload.min_bytes", elements * (bf16_ ? 2 : 4), 0, "min_offloaded_tensor_size");
  if (request_.text("fine_grained_offloading_max_inflight_offloads")) {
    result_.machinery.push_back({"fine_grained_offloading_max_inflight_offloads", "by module",
                                 "offload.max_inflight counts the copies of all modules together"});
  }
}

void Carrier::sharding() {
  for (const char* name : {"use_distributed_optimizer", "data_parallel_sharding_strategy",
                           "torch_fsdp2_reshard_after_forward", "ddp_bucket_size",
                           "fsdp_double_buffer", "fsdp_db_use_persist_buf_on_alloc_fail"})
    use(name);
  std::string strategy = "no_shard", field;
  if (request_.flag("use_megatron_fsdp")) {
    field = "data_parallel_sharding_strategy";
    strategy = request_.text(field).value_or("optim_grads_params");
    if (!is_word<Sharding>(strategy))
      request_.fail(field, "is " + shown(strategy) + ", which is no strategy");
  } else if (request_.flag("use_torch_fsdp2")) {
    field = "torch_fsdp2_reshard_after_forward";
    strategy = request_.flag(field) ? "optim_grads_params" : "optim_grads";
  } else if (request_.flag("use_distributed_optimizer")) {
    field = "use_distributed_optimizer";
    strategy = "optim";
  }
  sharding_ = strategy != "no_shard";
  shares_slots_ = strategy == "optim_grads" || strategy == "optim_grads_params";
  if (!request_.flag("use_megatron_fsdp")) {
    for (const char* name : {"data_parallel_sharding_strategy", "fsdp_double_buffer"})
      idle(name, "--use-megatron-fsdp");
  }
  set("fsdp.strategy", strategy, field);
  if (!sharding_) return;
  if (const auto elements = request_.integer("ddp_bucket_size"))
    set_sized("fsdp.bucket_bytes", *elements * 4, 4096, "ddp_bucket_size");
}

}  // namespace lockstep
