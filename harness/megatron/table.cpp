#include "harness/megatron/table.h"

namespace lockstep {
namespace {

using As = PlainKey::As;

constexpr PlainKey kPlain[] = {
    {"layernorm_epsilon", "model.norm_eps", As::number},
    {"rotary_base", "model.attention.rope_base", As::number, When::attention},
    {"hidden_dropout", "model.dropout", As::ratio},
    {"moe_router_enable_expert_bias", "model.moe.expert_bias", As::flag, When::experts},
    {"moe_pad_expert_input_to_capacity", "model.moe.pad_to_capacity", As::flag, When::experts},
    {"moe_z_loss_coeff", "model.moe.z_loss", As::ratio, When::experts},
    {"lr", "training.optimizer.lr", As::number},
    {"min_lr", "training.optimizer.min_lr", As::number},
    {"weight_decay", "training.optimizer.weight_decay", As::number},
    {"adam_eps", "training.optimizer.eps", As::number},
    {"clip_grad", "training.optimizer.clip", As::number},
    {"seed", "training.seed"},
    {"activation_offload_fraction", "offload.fraction", As::ratio, When::offload},
    {"fine_grained_offloading_max_inflight_offloads", "offload.max_inflight", As::integer,
     When::offload},
    {"delay_offload_until_cuda_graph", "offload.delay_until_cuda_graph", As::flag, When::offload},
    {"fsdp_double_buffer", "fsdp.double_buffer", As::flag, When::sharding},
    {"fsdp_db_use_persist_buf_on_alloc_fail", "fsdp.persist_buf_on_alloc_fail", As::flag,
     When::sharding},
};

constexpr FixedField kFixed[] = {
    {"normalization", "RMSNorm", "every norm is RMSNorm"},
    {"layernorm_zero_centered_gamma", "False", "gains are not centred at zero"},
    {"add_bias_linear", "False", "linear layers have no bias"},
    {"add_qkv_bias", "False", "linear layers have no bias", When::attention},
    {"attention_dropout", "0", "attention probabilities are never dropped", When::attention},
    {"position_embedding_type", "rope", "positions enter by RoPE", When::attention},
    {"rotary_percent", "1", "RoPE turns all features", When::attention},
    {"rotary_interleaved", "False", "RoPE turns halves", When::attention},
    {"qk_layernorm", "False", "queries and keys are not normed", When::attention},
    {"multi_latent_attention", "False", "attention has heads of keys and values", When::attention},
    {"softmax_type", "vanilla", "the softmax has no sink", When::attention},
    {"apply_residual_connection_post_layernorm", "False", "the residual is taken before the norm"},
    {"fp32_residual_connection", "False", "the residual has the type of the activations",
     When::bf16},
    {"calculate_per_token_loss", "True", "the loss is the mean over all targets of a step"},
    {"optimizer", "adam", "the optimizer is AdamW"},
    {"weight_decay_incr_style", "constant", "weight decay is constant"},
    {"moe_router_pre_softmax", "False", "scores are normalised after the choice", When::experts},
    {"moe_token_drop_policy", "probs", "the least probable tokens are dropped", When::experts},
};

constexpr WithoutKey kArithmetic = WithoutKey::arithmetic, kMachinery = WithoutKey::machinery,
                     kNoEffect = WithoutKey::no_effect;

constexpr Remark kRemarks[] = {
    {"fp16", kArithmetic, "bf16 is run in its place"},
    {"fp8", kArithmetic, "fp8 is not built"},
    {"fp4", kArithmetic, "fp4 is not built"},
    {"mtp_num_layers", kArithmetic, "there is no multi-token prediction"},
    {"cross_entropy_loss_fusion", kArithmetic, "the loss has one fixed order of rounding"},
    {"window_size", kArithmetic, "attention sees its whole document"},
    {"init_method_std", kNoEffect, "weights are lockstep's own"},
    {"use_precision_aware_optimizer", kArithmetic, "weights and moments are fp32"},
    {"attention_softmax_in_fp32", kNoEffect, "the softmax is fp32 always"},
    {"megatron_fsdp_main_params_dtype", kArithmetic, "weights are fp32"},
    {"megatron_fsdp_main_grads_dtype", kArithmetic, "gradients are fp32"},
    {"megatron_fsdp_grad_comm_dtype", kArithmetic, "gradients travel in fp32"},
    {"grad_reduce_in_bf16", kArithmetic, "gradients travel in fp32"},
    {"tensor_model_parallel_size", kMachinery, "parallel.tensor is not built: 1 here"},
    {"pipeline_model_parallel_size", kMachinery,
     "parallel.pipeline is not built: 1 here, with as many microbatches in flight"},
    {"context_parallel_size", kMachinery, "parallel.context is not built: 1 here"},
    {"expert_model_parallel_size", kMachinery, "parallel.expert is not built: 1 here"},
    {"use_megatron_fsdp", kMachinery, "which implementation shards has no key"},
    {"use_torch_fsdp2", kMachinery, "which implementation shards has no key"},
    {"overlap_grad_reduce", kMachinery, "reductions always overlap here"},
    {"overlap_param_gather", kMachinery, "gathers always overlap here"},
    {"suggested_communication_unit_size", kMachinery, "fsdp.prefetch is nearest: 1 here"},
    {"nccl_ub", kMachinery, "fsdp.nccl_ub is not built"},
    {"outer_dp_sharding_strategy", kMachinery, "hybrid sharding has no key"},
    {"num_distributed_optimizer_instances", kMachinery, "hybrid sharding has no key"},
    {"cpu_offloading_num_layers", kMachinery, "offload.modules is by module, not by layer"},
    {"optimizer_cpu_offload", kMachinery, "the optimizer's state stays on the device"},
    {"optimizer_cuda_graph", kMachinery, "the optimizer is captured under full_iteration alone"},
    {"check_for_nan_in_loss_and_grad", kNoEffect, "bits are compared instead"},
    {"te_rng_tracker", kNoEffect, "dropout is keyed by counters"},
    {"attention_backend", kMachinery, "model.core_attention: native here; cudnn is the other"},
    {"deterministic_mode", kNoEffect, "everything is deterministic here"},
    {"batch_invariant_mode", kNoEffect, "everything is batch-invariant here"},
    {"moe_token_dispatcher_type", kMachinery, "there is one dispatcher"},
    {"moe_grouped_gemm", kMachinery, "experts are one grouped product always"},
    {"apply_rope_fusion", kMachinery, "bits here do not depend on fusion"},
    {"masked_softmax_fusion", kMachinery, "bits here do not depend on fusion"},
    {"bias_dropout_fusion", kMachinery, "bits here do not depend on fusion"},
    {"bias_swiglu_fusion", kMachinery, "bits here do not depend on fusion"},
    {"bias_gelu_fusion", kMachinery, "bits here do not depend on fusion"},
    {"gradient_accumulation_fusion", kMachinery, "bits here do not depend on fusion"},
    {"max_position_embeddings", kNoEffect, "RoPE has no table"},
    {"eod_mask_loss", kNoEffect, "a document's last token has no target here"},
    {"sequence_parallel", kMachinery, "parallel.tensor is not built"},
    {"hybrid_context_parallel", kMachinery, "parallel.context is not built"},
    {"sequence_packing_scheduler", kMachinery, "packs are what data says"},
};

}  // namespace

std::span<const PlainKey> plain_keys() { return kPlain; }
std::span<const FixedField> fixed_fields() { return kFixed; }
std::span<const Remark> remarks() { return kRemarks; }

}  // namespace lockstep
