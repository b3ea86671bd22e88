// Every option of Megatron-LM's parser: main at d98e8a6 and dev at d48bd6b, August 2026.
#include "harness/megatron/options.h"

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

// OPTION[:FIELD][MARK]=DEFAULT. FIELD: where it is not the option's name. MARK: `!` sets, `~`
// clears,
// `*` takes any number of values. DEFAULT is empty where it is a blank or several words. `main@`,
// `dev@`: that branch alone has it.
// What is computed.
constexpr char kArithmetic[] = R"(
accumulate-allreduce-grads-in-fp32!=False activation-func-clamp-value=None adam-beta1=0.9
adam-beta2=0.999 adam-eps=1e-08 add-qkv-bias!=False
apply-layernorm-1p:layernorm_zero_centered_gamma!=False apply-query-key-layer-scaling!=False
apply-residual-connection-post-layernorm!=False apply-wd-to-qk-layernorm!=False
attention-dropout=0.1 attention-output-gate!=False attention-softmax-in-fp32!=False
bert-no-binary-head:bert_binary_head~=True bf16!=False cache-mla-latents!=False
calculate-per-token-loss!=False clip-grad=1.0 dev@cp-partition-mode=zigzag
cross-entropy-fusion-impl=native cross-entropy-loss-fusion!=False dev@csa-compress-ratios=None
dev@csa-compress-rotary-base=40000.0 dev@csa-dense-mode!=False dev@csa-window-size=128
decoder-num-layers=None decoupled-lr=None decoupled-min-lr=None
disable-bf16-reduced-precision-matmul!=False disable-bias-linear:add_bias_linear~=True
disable-dsa-indexer-rotate-activation:dsa_indexer_rotate_activation~=True dsa-indexer-head-dim=None
dsa-indexer-k-norm-epsilon=None dsa-indexer-k-norm-fp32!=False dsa-indexer-loss-coeff=None
dsa-indexer-n-heads=None dsa-indexer-rope-interleaved!=False dsa-indexer-skip-topk-offset=0
dsa-indexer-topk-freq=1 dsa-indexer-topk=None dsa-indexer-use-sparse-loss!=False
dev@enable-hyper-connections!=False main@enable-mhc-connections!=False encoder-num-layers=None
end-weight-decay=None exp-avg-dtype=fp32 exp-avg-sq-dtype=fp32 experimental-attention-variant=None
dev@fallback-to-eager-attn!=False ffn-hidden-size=None first-last-layers-bf16!=False fp16!=False
fp16-lm-cross-entropy!=False fp32-residual-connection!=False fp4-format:fp4=None
fp4-quantizer-factory=None fp4-recipe=nvfp4 fp8-amax-compute-algo=most_recent
fp8-amax-history-len=1 fp8-format:fp8=None fp8-margin=0 fp8-output-proj!=False
fp8-quantizer-factory=None fp8-recipe=delayed freeze-all-layers!=False
fused-residual-rmsnorm!=False dev@gdn-conv-pad-alignment=None
dev@gdn-pre-gated-delta-rule-fusion!=False main@gdp-num-householder=3 glu-linear-offset=0.0
grad-reduce-in-bf16!=False group-query-attention!=False dev@head-wise-attn-gate!=False
heterogeneous-layers-config-encoded-json=None heterogeneous-layers-config-path=None
hidden-dropout=0.1 hidden-size=None hybrid-layer-pattern=None hybrid-override-pattern=None
hysteresis=2 initial-loss-scale=4294967296 is-hybrid-model!=False kv-channels=None kv-lora-rank=32
linear-attention-freq=None dev@linear-attention-type=None linear-conv-kernel-dim=4
dev@linear-cp-mode=chunkwise linear-key-head-dim=128 linear-num-key-heads=16
linear-num-value-heads=32 linear-value-head-dim=128 lion-beta1=0.95 lion-beta2=0.98
dev@log-moe-overload-factor!=False logits-load-decode-threads=4 logits-load-dir=None
logits-load-ignore-errors!=False logits-load-kd-loss-alpha=1.0 logits-load-msc-prefetch-depth=2
logits-load-prefetch-factor=3 logits-save-dir=None logits-save-dtype=fp16 logits-save-top-k=None
logits-save-top-p-min-k=1 logits-save-top-p=None loss-scale-window=1000 loss-scale=None
lr-decay-iters=None lr-decay-samples=None lr-decay-style=linear lr-warmup-fraction=None
lr-warmup-init=0.0 lr-warmup-iters=0 lr-warmup-samples=0 lr-wsd-decay-iters=None
lr-wsd-decay-samples=None lr-wsd-decay-style=exponential lr=None main-grads-dtype=fp32
main-params-dtype=fp32 make-vocab-size-divisible-by=128 mamba-head-dim=64 mamba-num-groups=8
mamba-num-heads=None mamba-state-dim=128 mamba-training-ssm-states-dtype=None
max-position-embeddings=None mhc-init-gating-factor=0.01 mhc-sinkhorn-iterations=20
min-loss-scale=1.0 min-lr=0.0 mla-down-proj-fusion!=False moe-apply-probs-on-input!=False
moe-aux-loss-coeff*=0.0 main@moe-combine-bwd-dtype=bf16 main@moe-dispatch-fwd-dtype=bf16
moe-expert-capacity-factor=None moe-expert-rank-capacity-factor=None moe-ffn-hidden-size=None
moe-input-jitter-eps=None moe-latent-size=None moe-layer-freq=1 moe-mlp-glu-interleave-size=None
dev@moe-n-hash-layers=0 moe-pad-expert-input-to-capacity!=False moe-router-bias-update-rate=0.001
moe-router-dtype=None moe-router-enable-expert-bias!=False moe-router-force-biased=None
moe-router-force-load-balancing!=False moe-router-fusion!=False moe-router-group-topk=None
moe-router-load-balancing-type*=aux_loss moe-router-num-groups=None
moe-router-padding-for-fp8!=False moe-router-padding-for-quantization!=False
moe-router-pre-softmax!=False main@moe-router-quantile-balancing-ema=0.0
moe-router-score-function=softmax moe-router-topk-scaling-factor=None moe-router-topk=2
moe-shared-expert-gate!=False moe-shared-expert-glu-interleave-size=None
moe-shared-expert-intermediate-size=None moe-single-grouped-bias!=False
moe-single-grouped-weight!=False moe-token-drop-policy=probs moe-upcycling-granularity=1
main@moe-use-grouped-tensor!=False moe-use-upcycling!=False moe-z-loss-coeff=None
dev@mrope-interleaved!=False mrope-section*=None mscale-all-dim=0.0 mscale=1.0
mtp-detach-heads!=False main@mtp-hsm!=False mtp-hybrid-override-pattern=None
mtp-loss-scaling-factor=0.1 mtp-num-layers=None mtp-use-repeated-layer!=False
multi-latent-attention!=False muon-coefficient-type=quintic muon-extra-scale-factor=1.0
muon-fp32-matmul-prec=medium muon-momentum=0.9 muon-nesterov!=False
muon-no-split-qkv:muon_split_qkv~=True muon-num-ns-steps=5 muon-scalar-optimizer=adam
muon-scale-mode=spectral muon-tp-mode=duplicated main@muon-use-syrk!=False mup-attn-scale-power=1.0
mup-embedding-mult=1.0 mup-output-mult=1.0 mup-width-mult=1.0
no-bias-dropout-fusion:bias_dropout_fusion~=True no-bias-gelu-fusion:bias_gelu_fusion~=True
no-bias-swiglu-fusion:bias_swiglu_fusion~=True
no-dsa-indexer-rotate-activation:dsa_indexer_rotate_activation~=True
dev@no-dsa-kernel-fusion:apply_dsa_kernel_fusion~=None
no-gradient-accumulation-fusion:gradient_accumulation_fusion~=True
no-masked-softmax-fusion:masked_softmax_fusion~=True no-persist-layer-norm!=False
no-position-embedding:add_position_embedding~=True no-rope-freq=None
no-rope-fusion:apply_rope_fusion~=True no-weight-decay-cond-type=None
no-yarn-correction-range-round-to-int:yarn_correction_range_round_to_int~=True
norm-epsilon:layernorm_epsilon=1e-05 normalization=LayerNorm num-attention-heads=None
num-experts=None num-layers-at-end-in-bf16=1 num-layers-at-start-in-bf16=1 num-layers=None
num-query-groups=1 dev@o-groups=8 dev@o-lora-rank=1024 onnx-safe=None openai-gelu!=False
optimizer=adam dev@original-max-position-embeddings=4096 main@output-logit-dtype:logit_dtype=None
override-opt-param-scheduler!=False override-opt_param-scheduler!=False padded-vocab-size=None
position-embedding-type=learned_absolute q-lora-rank=None qk-clip!=False qk-clip-alpha=0.5
qk-clip-threshold=100 qk-head-dim=128 qk-l2-norm!=False qk-layernorm!=False qk-pos-emb-head-dim=64
quick-geglu!=False relative-attention-max-distance=128 relative-attention-num-buckets=32
reuse-grad-buf-for-mxfp8-param-ag!=False rope-scaling-factor=8.0 rope-type=None
dev@rotary-base-per-layer*=None rotary-base=10000 rotary-interleaved!=False rotary-percent=1.0
rotary-scaling-factor=1.0 rotary-seq-len-interpolation-factor=None seq-length=None sft!=False
dev@sft-mock-dataset-config-json=None sft-tokenizer-prompt-format=nemotron-h-aligned
sgd-momentum=0.9 softmax-type=vanilla squared-relu!=False start-weight-decay=None swiglu!=False
untie-embeddings-and-output-weights!=False use-checkpoint-opt-param-scheduler!=False
use-checkpoint-opt_param-scheduler!=False dev@use-fused-mhc!=False
use-fused-weighted-squared-relu!=False use-kitchen-attention!=False use-mup!=False
use-precision-aware-optimizer!=False use-rope-scaling!=False use-rotary-position-embeddings!=False
use-te-activation-func!=False v-head-dim=128 vocab-size=None warmup=None
weight-decay-incr-style=constant weight-decay=0.01 window-attn-skip-freq=None window-size=None
yarn-beta-fast=None yarn-beta-slow=None yarn-correction-range-round-to-int!=None
yarn-original-max-position-embeddings=None
)";

// How it is done.
constexpr char kMachinery[] = R"(
account-for-embedding-in-pipeline-split!=False account-for-loss-in-pipeline-split!=False
activation-offload-fraction=1.0 attention-backend=AttnBackend.auto
main@batch-invariant-backend=te_native batch-invariant-mode!=False batch-size=None
checkpoint-activations!=False dev@chunked-optimizer-state-offload!=False context-parallel-size=1
cp-comm-type*=['p2p'] cpu-offloading-num-layers=0 cpu-offloading-retain-pinned-cpu-buffers!=False
create-all-gather-group!=False dev@cuda-graph-dynamic-microbatches!=False cuda-graph-impl=none
cuda-graph-modules*=[] cuda-graph-scope:cuda_graph_scope_deprecated*=None cuda-graph-warmup-steps=3
data-parallel-random-init!=False data-parallel-sharding-strategy=optim_grads_params
dataloader-type=None ddp-average-in-collective!=False ddp-bucket-size=None ddp-num-buckets=None
ddp-pad-buckets-for-high-nccl-busbw!=False ddp-param-name-patterns-for-fp32-local-accumulation*=[]
ddp-reduce-scatter-with-fp32-accumulation!=False decoder-first-pipeline-num-layers=None
decoder-last-pipeline-num-layers=None decrease-batch-size-if-needed!=False
defer-embedding-wgrad-compute!=False delay-offload-until-cuda-graph!=False
delay-wgrad-compute!=False delta-offload-bytes-across-pp-ranks=0 dev@dense-grouped-gemm!=False
deterministic-mode!=False disable-align-grad-reduce:align_grad_reduce~=True
disable-clone-scatter-output-in-embedding:clone_scatter_output_in_embedding~=True
disable-dsa-indexer-scoring-relu:dsa_indexer_scoring_relu~=True
disable-flight-recorder-extra-dump-on-exec:flight_recorder_extra_dump_on_exec~=True
disable-flight-recorder-include-only-active:flight_recorder_include_only_active~=True
disable-fp8-wgrad:fp8_wgrad~=True dev@disable-grad-buffers-cpu-backup!=False
disable-mamba-mem-eff-path:use_mamba_mem_eff_path~=True dev@disable-param-buffers-cpu-backup!=False
disable-symmetric-registration!=False disable-tp-comm-bulk-dgrad:tp_comm_bulk_dgrad~=True
disable-tp-comm-bulk-wgrad:tp_comm_bulk_wgrad~=True
disable-tp-comm-overlap-ag:tp_comm_overlap_ag~=True
disable-tp-comm-overlap-rs:tp_comm_overlap_rs~=True disable-tp-comm-split-ag:tp_comm_split_ag~=True
disable-tp-comm-split-rs:tp_comm_split_rs~=True distribute-saved-activations!=False
distributed-backend=nccl dsa-kernel-backend=none dev@dynamic-context-parallel!=False
enable-cuda-graph!=False enable-full-sharding-in-hsdp!=False
ep-overlap-early-attn-memory-release!=False expert-model-parallel-size=1
main@expert-tensor-parallel-num-weight-shards=None expert-tensor-parallel-size=None
external-cuda-graph!=False fine-grained-activation-offloading!=False
fine-grained-offloading-max-inflight-offloads=None main@flash-attention-version=None
fp4-param-gather!=False fp8-param-gather!=False fsdp-db-use-persist-buf-on-alloc-fail!=False
fsdp-double-buffer!=False fsdp-manual-registration!=False main@gdp-cutedsl-kernel!=False
main@gdp-num-chunk-states-to-recompute=2 global-batch-size=None
main@gtp-expert-remat-nccl-ub!=False main@gtp-remat-nccl-ub!=False
main@gtp-remat-opt-in-modules*=[] main@gtp-remat-reduce-scatter-with-fp32-accumulation!=False
hierarchical-context-parallel-sizes*=None high-priority-a2a-comm-stream!=False
high-priority-stream-groups*=[] hybrid-context-parallel!=False keep-fp8-transpose-cache!=False
kitchen-attention-backend=sdpa max-seqlen-per-dp-cp-rank=None
dev@megatron-fsdp-cache-param-bucket-views!=False
megatron-fsdp-enable-fine-grained-param-gather!=False megatron-fsdp-grad-comm-dtype=auto
megatron-fsdp-main-grads-dtype=auto megatron-fsdp-main-params-dtype=fp32
megatron-fsdp-max-pool-double-buffer!=False
dev@megatron-fsdp-prefetch-recompute-forward-weights!=False main@megatron-fsdp-version=1
main@mhc-num-residual-streams=4 mhc-recompute-layer-num=None micro-batch-size=None
microbatch-group-size-per-virtual-pipeline-stage:microbatch_group_size_per_vp_stage=None
dev@min-dynamic-context-parallel-size=1 min-offloaded-tensor-size=1048576 mlp-chunks-for-training=1
model-parallel-size=None moe-deepep-num-sms=None moe-enable-deepep!=False
moe-enable-routing-replay!=False moe-flex-dispatcher-backend=deepep
moe-flex-dispatcher-num-sms=None moe-grouped-gemm!=False moe-hybridep-num-blocks-permute=None
moe-hybridep-num-blocks-unpermute=None moe-hybridep-num-sms-preprocessing=108
moe-hybridep-num-sms=None main@moe-hybridep-pad-uneven-dispatch-inputs!=False
dev@moe-hybridep-pad-variable-tokens!=False moe-layer-recompute!=False
dev@moe-ncclep-static-shape!=False dev@moe-ncclep-use-symm-mem!=False
main@moe-ncclep-zero-copy!=False moe-paged-stash!=False moe-paged-stash-buffer-size-factor-cpu=0.0
moe-paged-stash-buffer-size-factor-cuda=1.1 moe-paged-stash-page-size=64 moe-permute-fusion!=False
moe-permute-fusion-into-hybridep!=False moe-shared-expert-overlap!=False
moe-token-dispatcher-type=allgather mtp-standalone!=False nccl-communicator-config-path=None
no-align-grad-reduce:align_grad_reduce~=True no-align-param-gather:align_param_gather~=True
no-clone-scatter-output-in-embedding:clone_scatter_output_in_embedding~=True
no-dsa-indexer-scoring-relu:dsa_indexer_scoring_relu~=True
no-flight-recorder-extra-dump-on-exec:flight_recorder_extra_dump_on_exec~=True
no-flight-recorder-include-only-active:flight_recorder_include_only_active~=True
no-fp8-wgrad:fp8_wgrad~=True no-gradient-reduce-div-fusion:gradient_reduce_div_fusion~=True
no-overlap-p2p-communication:overlap_p2p_comm~=True no-pin-cpu-grads:pin_cpu_grads~=True
no-pin-cpu-params:pin_cpu_params~=True no-tp-comm-bulk-dgrad:tp_comm_bulk_dgrad~=True
no-tp-comm-bulk-wgrad:tp_comm_bulk_wgrad~=True no-tp-comm-overlap-ag:tp_comm_overlap_ag~=True
no-tp-comm-overlap-rs:tp_comm_overlap_rs~=True no-tp-comm-split-ag:tp_comm_split_ag~=True
no-tp-comm-split-rs:tp_comm_split_rs~=True
main@no-use-layer-wise-param-layout:use_layer_wise_param_layout~=True
num-distributed-optimizer-instances=1 num-layers-per-virtual-pipeline-stage=None
dev@num-residual-streams=4 num-virtual-stages-per-pipeline-rank=None offload-modules*=[]
dev@offload-optimizer-states!=False optimizer-cpu-offload!=False optimizer-cuda-graph!=False
optimizer-offload-fraction=1.0 dev@optimizer-state-offload-chunk-size-mb=0
dev@optimizer-state-offload-fraction=1.0 outer-dp-sharding-strategy=no_shard
overlap-cpu-optimizer-d2h-h2d!=False overlap-dispatch-backward-with-experts-wgrad!=False
overlap-grad-reduce!=False overlap-moe-expert-parallel-comm!=False
overlap-p2p-communication-warmup-flush:overlap_p2p_comm_warmup_flush!=False
overlap-param-gather!=False overlap-param-gather-with-optimizer-step!=False
dev@pad-packed-seq-alignment=None pipeline-model-parallel-comm-backend=None
pipeline-model-parallel-layout=None pipeline-model-parallel-size=1 rampup-batch-size*=None
recompute-activations!=False recompute-granularity=None recompute-method=None
recompute-modules*=None recompute-num-layers=None dev@sequence-packing-scheduler=None
sequence-parallel!=False sharp-enabled-group=None step-batch-size-schedule=None
suggested-communication-unit-size=None symmetric-ar-type=None te-precision-config-file=None
te-rng-tracker!=False tensor-model-parallel-size=1 main@tensor-parallel-num-weight-shards=None
dev@thd-max-packed-sequences=None dev@thd-tail-padding-policy=None
torch-fsdp2-no-reshard-after-forward:torch_fsdp2_reshard_after_forward~=True
tp-comm-bootstrap-backend=nccl tp-comm-overlap!=False tp-comm-overlap-cfg=None
tp-comm-overlap-rs-dgrad!=False train-iters=None transformer-impl=transformer_engine
use-distributed-optimizer!=False use-flash-attn!=False use-grouped-gemm-for-dense-mlp!=False
use-grouped-gemm-for-shared-expert!=False dev@use-layer-wise-param-layout!=False
use-mcore-models:deprecated_use_mcore_models!=False use-megatron-fsdp!=False
use-nccl-ub:nccl_ub!=False use-ring-exchange-p2p!=False use-sharp!=False use-torch-fsdp2!=False
use-torch-optimizer-for-cpu-offload!=False use-tp-pp-dp-mapping!=False
use-transformer-engine-op-fuser!=False dev@use-varlen-dataset!=False
dev@varlen-mock-dataset-config-json=None dev@varlen-sbhd-validation!=False wgrad-deferral-limit=0
)";

// What lockstep has nothing of: files, logs, inference, other models.
constexpr char kNoEffect[] = R"(
adlr-autoresume!=False adlr-autoresume-interval=1000 allow-ambiguous-pad-tokens!=False
app-tag-run-name=None app-tag-run-version=0.0.0 async-ckpt-cpu-priority=10 async-ckpt-io-priority=3
async-ckpt-use-cpu-shm!=False async-save!=False async-strategy=nvrx auto-detect-ckpt-format!=False
bert-embedder-type=megatron bert-load=None biencoder-projection-dim=0
biencoder-shared-query-context-model!=False block-data-path=None calc-ft-timeouts!=False
chat-template=None check-for-large-grads!=False check-for-spiky-loss!=False
check-weight-hash-across-dp-replicas-interval=None ckpt-assume-constant-structure!=False
ckpt-convert-format=None ckpt-convert-save=None ckpt-convert-update-legacy-dist-opt-format!=False
main@ckpt-drop-redundant-extra-state!=False ckpt-format=torch_dist ckpt-fully-parallel-load!=False
ckpt-fully-parallel-load-exchange-algo=broadcast
main@ckpt-fully-parallel-load-per-rank-objects!=False ckpt-fully-parallel-load-process-group=dp
ckpt-fully-parallel-save-process-group=dp
ckpt-fully-parallel-save:ckpt_fully_parallel_save_deprecated!=False
main@ckpt-pg-tensors-cache-create!=False main@ckpt-pg-tensors-cache-path=None ckpt-step=None
classes-fraction=1.0 config-logger-dir= data-args-path=None data-cache-path=None data-path*=None
data-per-class-fraction=1.0 dataloader-defer-npy-index-mmap!=False
dataloader-fast-cache-load!=False dataloader-inter-document-masking!=False
decode-only-cuda-graphs!=False decoder-seq-length=None dino-bottleneck-size=256
dino-freeze-last-layer=1 dino-head-hidden-size=2048 dino-local-crops-number=10
dino-local-img-size=96 dino-norm-last-layer!=False dino-teacher-temp=0.07
dino-warmup-teacher-temp-epochs=30 dino-warmup-teacher-temp=0.04
disable-ckpt-load-validate-sharding-integrity:ckpt_load_validate_sharding_integrity~=True
disable-flight-recorder-dump-on-timeout:flight_recorder_dump_on_timeout~=True
disable-gloo-process-groups:use_gloo_process_groups~=True disable-jit-fuser!=False
disable-log-loss-scale-to-tensorboard:log_loss_scale_to_tensorboard~=True
disable-manual-gc-eval:manual_gc_eval~=True disable-msc:disable_msc_deprecated!=False
disable-pad-vocab-size:pad_vocab_size~=True
main@disable-save-tokenizer-assets:save_tokenizer_assets~=True disable-straggler-on-startup!=False
disable-strict-fsdp-dtensor-load:strict_fsdp_dtensor_load~=True
disable-tokenizer-sentencepiece-ignore-extra-whitespaces:tokenizer_sentencepiece_ignore_extra_whitespaces~=True
disable-use-tokenizer-model-from-checkpoint-args:use_tokenizer_model_from_checkpoint_args~=True
dist-ckpt-format:dist_ckpt_format_deprecated=None dist-ckpt-optim-fully-reshardable!=False
dist-ckpt-save-pre-mcore-014!=False dist-ckpt-strictness=assume_ok_unexpected dist-ckpt-workers=1
distrib-optim-fully-reshardable-mem-efficient!=False distributed-timeout-minutes=10
distributed-timeout-seconds-after-init=None dump-param-to-param-group-map=None
embedding-init-method-std=None embedding-path=None empty-unused-memory-level=0
enable-chunked-prefill!=False enable-experimental!=False enable-ft-package!=False enable-msc!=False
encoder-seq-length=None eod-mask-loss!=False error-injection-rate=0
error-injection-type=transient_error eval-global-batch-size=None eval-interval=None eval-iters=100
eval-micro-batch-size=None evidence-data-path=None exit-duration-in-mins=None exit-interval=None
exit-on-missing-checkpoint!=False exit-signal-handler!=False
exit-signal-handler-for-dataloader!=False exit-signal-handler-for-training!=False exit-signal=15
fake-process-group!=False fault-injector-delay-start-iteration=None fault-injector-fault-delay=None
fault-injector-fault-probabilities=None fault-injector-fault-types=None
fault-injector-mtti-seconds=None fault-injector-num-ranks=None fault-injector-offset-seconds=None
fault-injector-ranks=None fault-injector-seed=None fim-data!=False fim-eod-token=<|endoftext|>
fim-fragment-rate=None fim-middle-token=<fim_middle> fim-no-prefix=None fim-pad-token=<fim_pad>
fim-prefix-token=<fim_prefix> fim-rate=0.5 fim-split-sample=None fim-spm-rate=0.5
fim-suffix-token=<fim_suffix> finetune!=False flash-decode!=False flight-recorder-dump-path=None
flight-recorder-include-stack-trace!=False flight-recorder-trace-buffer-size=2000 fp8-interval=1
ft-num-warmup-iters=5 full-validation!=False gpu-sniff-test-interval=None grpo-clamp-eps-lower=0.01
grpo-clamp-eps-upper=0.01 grpo-entropy-term-weight=0.0 grpo-filter-groups-with-same-reward!=False
grpo-group-size=2 grpo-iterations=2 grpo-kl-beta=0.001 grpo-prompts-per-step=32 head-lr-mult=1.0
ict-head-size=None ict-load=None img-h=224 img-w=224 indexer-batch-size=128
indexer-log-interval=1000 inference-batch-times-seqlen-threshold=-1 inference-coordinator-port=None
inference-cuda-graph-all-prefills!=False main@inference-cuda-graph-max-tokens=512
inference-cuda-graph-scope=None inference-disable-ep-consensus!=False
inference-disable-triton-nvls-kernels!=False inference-dynamic-batching!=False
inference-dynamic-batching-async-sched-mode=legacy inference-dynamic-batching-block-size=256
inference-dynamic-batching-buffer-size-gb=40.0
dev@inference-dynamic-batching-cuda-graph-max-tokens=16384
inference-dynamic-batching-cuda-graph-mixed-prefill-count=16
inference-dynamic-batching-cuda-graph-sizing-distribution=exponential
inference-dynamic-batching-logprobs-mode=raw_logprobs
inference-dynamic-batching-mamba-memory-ratio=None inference-dynamic-batching-max-requests=None
inference-dynamic-batching-max-tokens=None inference-dynamic-batching-num-cuda-graphs=16
inference-dynamic-batching-paused-buffer-size-gb=None
inference-dynamic-batching-prefix-caching-coordinator-policy=load_balanced
inference-dynamic-batching-prefix-caching-eviction-policy=ref_zero
inference-dynamic-batching-prefix-caching-mamba-gb=None
inference-dynamic-batching-prefix-caching-routing-alpha=0.5
inference-dynamic-batching-prefix-caching:inference_dynamic_batching_enable_prefix_caching!=False
inference-dynamic-batching-sampling-backend=torch
inference-dynamic-batching-track-generated-token-events!=False
inference-dynamic-batching-track-paused-request-events!=False
inference-dynamic-batching-unified-memory-level=0 inference-fuse-tp-communication!=False
inference-grouped-gemm-backend=vllm inference-logging-step-interval=0 inference-max-requests=8
inference-max-seq-length=2560 inference-moe-disable-fused-quant-kernels!=False
inference-moe-token-dispatcher-type=nvls inference-rng-tracker!=False inference-shards=None
inference-text-gen-server-logging!=False inference-use-synchronous-zmq-collectives!=False
inference-wandb-logging!=False init-method-std=0.02 init-method-xavier-uniform!=False
init-model-with-meta-device!=False inprocess-active-world-size=1 inprocess-barrier-timeout=120
inprocess-completion-timeout=120 inprocess-empty-cuda-cache!=False inprocess-granularity=node
inprocess-hard-timeout=90 inprocess-heartbeat-interval=30 inprocess-heartbeat-timeout=60
inprocess-last-call-wait=1 inprocess-max-iterations=None inprocess-monitor-process-interval=1.0
inprocess-monitor-thread-interval=1.0 inprocess-progress-watchdog-interval=1.0
inprocess-restart!=False inprocess-soft-timeout=60 inprocess-termination-grace-time=1
iter-per-epoch=1250 iterations-to-skip*=[] langrl-env-config=None lazy-mpu-init!=False
load-main-params-from-ckpt!=False load=None local-rank=0 log-device-memory-used!=False
log-energy!=False log-interval=100 log-max-attention-logit!=False log-memory-interval=None
log-memory-to-tensorboard!=False log-num-zeros-in-grad!=False log-params-norm!=False
log-progress!=False log-straggler!=False log-throughput!=False log-timers-to-tensorboard!=False
log-validation-ppl-to-tensorboard!=False log-world-size-to-tensorboard!=False logging-level=None
mamba-inference-conv-states-dtype=bf16 mamba-inference-ssm-states-dtype=bf16 manual-gc!=False
manual-gc-interval=0 mask-factor=1.0 mask-prob=0.15 mask-type=random max-tokens-to-oom=12000
memory-snapshot-path=snapshot.pickle merge-file=None mid-level-dataset-surplus=0.005
mlp-chunks-for-prefill=1 mock-data!=False moe-pad-experts-for-cuda-graph-inference!=False
moe-per-layer-logging!=False moe-routing-trace-capture-hidden-states!=False
moe-routing-trace-capture-logits!=False moe-routing-trace-dump-weights!=False
moe-routing-trace-max-training-iters=None moe-routing-trace-path=None
multiple-validation-sets!=False mup-base-head-dim=None mup-base-hidden-size=None
nccl-all-reduce-for-prefill!=False no-barrier-with-level-1-timing:barrier_with_L1_time~=True
no-check-for-nan-in-loss-and-grad:check_for_nan_in_loss_and_grad~=True
no-ckpt-fully-parallel-save:ckpt_fully_parallel_save~=True
no-ckpt-load-validate-sharding-integrity:ckpt_load_validate_sharding_integrity~=True
no-create-attention-mask-in-dataloader:create_attention_mask_in_dataloader~=True
no-data-sharding:data_sharding~=True
no-flight-recorder-dump-on-timeout:flight_recorder_dump_on_timeout~=True
no-inference-disable-ep-consensus:inference_disable_ep_consensus~=False
no-inference-dynamic-batching-prefix-caching:inference_dynamic_batching_enable_prefix_caching~=False
no-inference-text-gen-server-logging:inference_text_gen_server_logging~=False
no-inference-use-synchronous-zmq-collectives:inference_use_synchronous_zmq_collectives~=False
no-inference-wandb-logging:inference_wandb_logging~=False
no-initialization:perform_initialization~=True no-load-optim!=None no-load-rng!=None
no-log-loss-scale-to-tensorboard:log_loss_scale_to_tensorboard~=True
no-manual-gc-eval:manual_gc_eval~=True no-mmap-bin-files:mmap_bin_files~=True
no-one-logger:enable_one_logger~=True no-pad-vocab-size:pad_vocab_size~=True
no-rl-inference-logprobs-is-correction:rl_inference_logprobs_is_correction~=False
no-rl-offload-inference-model-weights-when-idle:rl_offload_inference_model_weights_when_idle~=False
no-rl-partial-rollouts:rl_partial_rollouts~=False
no-rl-persist-cuda-graphs:rl_persist_cuda_graphs~=False
no-rl-skip-bos-token:rl_skip_bos_token~=False
no-rl-training-cuda-graphs:rl_training_cuda_graphs~=False
no-rl-use-sequence-packing:rl_use_sequence_packing~=False
no-rl-verify-model-weights-swap:rl_verify_model_weights_swap~=False no-save-optim!=None
no-save-rng!=None main@no-save-tokenizer-assets:save_tokenizer_assets~=True
no-strict-fsdp-dtensor-load:strict_fsdp_dtensor_load~=True
no-tokenizer-sentencepiece-ignore-extra-whitespaces:tokenizer_sentencepiece_ignore_extra_whitespaces~=True
no-use-tokenizer-model-from-checkpoint-args:use_tokenizer_model_from_checkpoint_args~=True
non-persistent-ckpt-type=None non-persistent-global-ckpt-dir=None
non-persistent-local-ckpt-algo=fully_parallel non-persistent-local-ckpt-dir=None
non-persistent-save-interval=None null-tokenizer-eod-id=None null-tokenizer-pad-id=-1
num-channels=3 num-classes=1000 num-dataset-builder-threads=1 num-speculative-tokens=0
num-workers=2 nvtx-ranges!=False object-storage-cache-path=None one-logger-async!=False
one-logger-project=megatron-lm one-logger-run-name=None main@otel-enabled!=False
main@otel-service-name=None main@otel-span-groups=None output-bert-embeddings!=False
main@override-ckpt-iteration=None patch-dim=16 per-dataset-sequences-path=None
per-split-data-args-path=None perform-rl-step!=False persistent-save-interval:save_interval=None
phase-transition-iterations=None pretrained-checkpoint=None profile!=False profile-ranks*=[]
profile-step-end=12 profile-step-start=10 pytorch-profiler-collect-callstack!=False
pytorch-profiler-collect-chakra!=False pytorch-profiler-collect-shapes!=False
query-in-block-prob=0.1 record-memory-history!=False record-shapes!=False refit-method=gloo
replication!=False replication-factor=2 replication-jump=None rerun-mode=validate_results
reset-attention-mask!=False reset-position-ids!=False result-rejected-tracker-filename=None
retriever-report-topk-accuracies*=[] retriever-score-scaling!=False rl-consumption-granularity=B
rl-default-temperature=1.0 rl-default-top-k=-1 rl-default-top-p=0
main@rl-durable-rollout-bank!=False rl-generation-lag=None
rl-importance-sampling-truncation-coef=None rl-inference-expert-model-parallel-size=None
rl-inference-expert-tensor-model-parallel-size=None rl-inference-logprobs-is-correction!=False
rl-inference-model-unified-memory-level=0 rl-inference-parsers*=[]
rl-inference-pipeline-model-parallel-size=None rl-inference-tensor-model-parallel-size=None
rl-kv-cache-management-mode=persist main@rl-max-inflight-requests=None
rl-offload-inference-model-weights-when-idle!=False rl-offload-optimizer-during-inference!=False
rl-partial-rollouts!=False rl-persist-cuda-graphs!=False rl-profile!=False rl-profile-dir=None
rl-prompts-per-eval=32 main@rl-rollout-bank-dir=None main@rl-rollout-bank-max-bytes=0
rl-sequence-packing-algo=fifo rl-sequence-packing-max-sequences-per-bin=50 rl-skip-bos-token!=False
rl-submission-granularity=B rl-training-cuda-graphs!=False rl-use-sequence-packing!=False
rl-verify-model-weights-swap!=False run-workload-inspector-server!=False sample-rate=1.0
save-activations-interval=None save-dgrads-interval=None save-interval=None
save-params-interval=None save-retain-interval=None save-tokens-per-expert-interval=None
save-wgrads-interval=None save=None seed=1234 short-seq-prob=0.1 skip-train!=False spec*=None
split=None start-eval-at-iter=None straggler-ctrlr-port=65535 straggler-minmax-count=1
swin-backbone-type=tiny tensorboard-dir=None tensorboard-log-interval=1 tensorboard-queue-size=1000
test-data-path*=None test-mode!=False tiktoken-num-special-tokens=1000 tiktoken-pattern=None
timing-log-level=0 timing-log-option=minmax titles-data-path=None
tokenizer-hf-no-include-special-tokens!=False tokenizer-hf-no-use-fast!=False
tokenizer-metadata:metadata_path=None tokenizer-model=None tokenizer-sentencepiece-legacy!=False
tokenizer-special-tokens:special_tokens*=None tokenizer-type=None train-data-path*=None
train-samples=None train-sync-interval=None trust-remote-code!=False use-checkpoint-args!=False
use-cpu-initialization!=None use-dist-ckpt:use_dist_ckpt_deprecated!=False
main@use-gigatoken!=False use-legacy-static-engine!=False use-mp-args-from-checkpoint-args!=False
use-one-sent-docs!=False use-persistent-ckpt-worker!=False use-pytorch-profiler!=False
main@use-same-sampling-seed-across-dp-ranks:offset_sampling_seed_by_dp_rank~=True
valid-data-path*=None validation-set-names*=None verify-integrity!=False vision-backbone-type=vit
vision-pretraining!=False vision-pretraining-type=classify vocab-extra-ids=0 vocab-file=None
wandb-entity=None wandb-exp-name=None wandb-project=None wandb-save-dir=None yaml-cfg=None
)";

MegatronOption option_of(std::string text, WithoutKey without_key) {
  MegatronOption option;
  option.without_key = without_key;
  if (const std::size_t at = text.find('@'); at != std::string::npos) {
    option.branch = text.substr(0, at);
    text.erase(0, at + 1);
  }
  const std::size_t equals = text.find('=');
  option.value = text.substr(equals + 1);
  std::string name = text.substr(0, equals);
  constexpr char kMarks[] = "*!~";
  constexpr MegatronOption::Takes kTakes[] = {
      MegatronOption::Takes::many, MegatronOption::Takes::sets, MegatronOption::Takes::clears};
  if (const char* mark = std::char_traits<char>::find(kMarks, 3, name.back())) {
    option.takes = kTakes[mark - kMarks];
    name.pop_back();
  }
  const std::size_t colon = name.find(':');
  option.option = name.substr(0, colon);
  option.field = colon == std::string::npos ? option.option : name.substr(colon + 1);
  std::replace(option.field.begin(), option.field.end(), '-', '_');
  return option;
}

template <class Member>
const MegatronOption* found_by(Member member, const std::string& name) {
  const std::vector<MegatronOption>& all = megatron_options();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const MegatronOption& option) { return option.*member == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<MegatronOption>& megatron_options() {
  static const std::vector<MegatronOption> options = [] {
    std::vector<MegatronOption> all;
    const std::pair<const char*, WithoutKey> lists[] = {{kArithmetic, WithoutKey::arithmetic},
                                                        {kMachinery, WithoutKey::machinery},
                                                        {kNoEffect, WithoutKey::no_effect}};
    for (const auto& [text, without_key] : lists) {
      std::istringstream words(text);
      for (std::string word; words >> word;) all.push_back(option_of(word, without_key));
    }
    return all;
  }();
  return options;
}

const MegatronOption* find_megatron_option(const std::string& name) {
  return name.rfind("--", 0) == 0 ? found_by(&MegatronOption::option, name.substr(2)) : nullptr;
}

const MegatronOption* find_megatron_field(const std::string& name) {
  return found_by(&MegatronOption::field, name);
}

}  // namespace lockstep
