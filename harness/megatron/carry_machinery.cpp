// Graphs, offload, sharding.
#include <algorithm>

#include "harness/megatron/carrier.h"
#include "scenarios/schema/words.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

template <class Enum>
bool is_word(const std::string& word) {
  return std::find(words<Enum>().begin(), words<Enum>().end(), word) != words<Enum>().end();
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
  if (!graphs_) return;
  if (impl != "full_iteration") {
    result_.machinery.push_back(
        {"cuda_graph_impl", impl,
         "cuda_graph.impl: partial stands for local and transformer_engine alike"});
    std::vector<std::string> modules;
    for (const std::string& word : asked) {
      if (word == "full" || word == "full_iteration") continue;
      if (is_word<GraphModule>(word)) {
        modules.push_back(word);
      } else {
        result_.machinery.push_back({"cuda_graph_modules", shown(word), "no such module here"});
      }
    }
    set("cuda_graph.modules", yaml_list(modules), "cuda_graph_modules");
  }
  warmup_ = sized(request_.integer("cuda_graph_warmup_steps").value_or(3), 2);
  set("cuda_graph.warmup_steps", warmup_, "cuda_graph_warmup_steps");
}

void Carrier::offload() {
  for (const char* name :
       {"fine_grained_activation_offloading", "offload_modules", "min_offloaded_tensor_size",
        "activation_offload_fraction", "fine_grained_offloading_max_inflight_offloads",
        "delay_offload_until_cuda_graph"})
    use(name);
  if (!request_.flag("fine_grained_activation_offloading")) return;
  std::vector<std::string> modules;
  for (const std::string& word : request_.list("offload_modules")) {
    if (is_word<OffloadModule>(word)) {
      modules.push_back(word);
    } else {
      result_.machinery.push_back({"offload_modules", shown(word), "no such module here"});
    }
  }
  offload_ = !modules.empty();
  if (!offload_) return;
  set("offload.modules", yaml_list(modules), "offload_modules");
  const std::int64_t elements = request_.integer("min_offloaded_tensor_size").value_or(1048576);
  set("offload.min_bytes", small() ? 0 : elements * (bf16_ ? 2 : 4), "min_offloaded_tensor_size");
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
  set("fsdp.strategy", strategy, field);
  if (!sharding_) return;
  if (const auto elements = request_.integer("ddp_bucket_size"))
    set("fsdp.bucket_bytes", sized(*elements * 4, 4096), "ddp_bucket_size");
}

}  // namespace lockstep
