#include <algorithm>

#include "scenarios/schema/schema.h"

namespace lockstep {

const std::map<std::string, std::string>& megatron_keys() {
  static const std::map<std::string, std::string> keys{
      {"scope", "cuda_graph.modules"},
      {"cuda_graph_scope", "cuda_graph.modules"},
      {"cuda_graph_modules", "cuda_graph.modules"},
      {"cuda_graph_impl", "cuda_graph.impl"},
      {"cuda_graph_warmup_steps", "cuda_graph.warmup_steps"},
      {"enable_cuda_graph", "cuda_graph.impl"},
      {"max_packed_seqs", "cuda_graph.max_packed_seqs"},
      {"data_parallel_sharding_strategy", "fsdp.strategy"},
      {"use_megatron_fsdp", "fsdp.strategy"},
      {"sharding_strategy", "fsdp.strategy"},
      {"fsdp_double_buffer", "fsdp.double_buffer"},
      {"fine_grained_activation_offloading", "offload.modules"},
      {"offload_modules", "offload.modules"},
      {"delay_offload_until_cuda_graph", "offload.delay_until_cuda_graph"},
      {"delta_offload_bytes_across_pp_ranks", "offload.delta_bytes"},
      {"recompute_modules", "model.recompute"},
      {"num_layers", "model.pattern"},
      {"hybrid_override_pattern", "model.pattern"},
      {"hybrid_layer_pattern", "model.pattern"},
      {"hidden_size", "model.hidden"},
      {"ffn_hidden_size", "model.mlp.hidden"},
      {"vocab_size", "model.vocab"},
      {"num_attention_heads", "model.attention.heads"},
      {"num_query_groups", "model.attention.kv_heads"},
      {"kv_channels", "model.attention.head_dim"},
      {"conv_kernel", "model.mamba.conv_width"},
      {"d_conv", "model.mamba.conv_width"},
      {"mamba_state_dim", "model.mamba.state"},
      {"mamba_head_dim", "model.mamba.head_dim"},
      {"mamba_num_groups", "model.mamba.groups"},
      {"num_experts", "model.moe.experts"},
      {"num_moe_experts", "model.moe.experts"},
      {"moe_router_topk", "model.moe.top_k"},
      {"router_topk", "model.moe.top_k"},
      {"moe_ffn_hidden_size", "model.moe.hidden"},
      {"moe_aux_loss_coeff", "model.moe.aux_loss"},
      {"moe_z_loss_coeff", "model.moe.z_loss"},
      {"moe_expert_capacity_factor", "model.moe.capacity_factor"},
      {"moe_pad_expert_input_to_capacity", "model.moe.pad_to_capacity"},
      {"seq_length", "data.pack_length"},
      {"train_iters", "training.steps"},
      {"data_parallel_size", "parallel.data"},
      {"bf16", "numerics"},
  };
  return keys;
}

std::string advice_from_megatron(const std::string& key, const std::string& word) {
  static const std::map<std::pair<std::string, std::string>, std::string> advice{
      {{"cuda_graph.modules", "full_iteration"},
       "the whole iteration is cuda_graph.impl: full_iteration"},
      {{"cuda_graph.modules", "full"}, "whole layers are cuda_graph.modules: []"},
      {{"model.recompute", "full"},
       "whole layers are the list of their parts: layernorm, core_attn, mlp, mamba, moe"},
  };
  const auto found = advice.find({key, word});
  return found == advice.end() ? "" : found->second;
}

std::string key_from_megatron(const std::string& name) {
  std::string plain = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto found = megatron_keys().find(plain);
  return found == megatron_keys().end() ? "" : found->second;
}

}  // namespace lockstep
