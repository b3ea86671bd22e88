// Every op, in one list. An op's id is its place here; the CUDA object has a table in the same
// order.
#pragma once

#include "kernels/diagnostics/digest.h"
#include "kernels/diagnostics/fingerprint.h"
#include "kernels/diagnostics/fp8_dots.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/diagnostics/tensor_core.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/exchange.h"
#include "kernels/moe/expert_product.h"
#include "kernels/moe/expert_state.h"
#include "kernels/moe/router.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/initialize.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/pack_metadata.h"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/scan.h"

namespace lockstep {

template <class... Ops>
struct OpList {
  static constexpr int size = sizeof...(Ops);
  template <class Op>
  static constexpr int id_of() {
    int id = 0;
    const bool found = ((std::is_same_v<Op, Ops> || (++id, false)) || ...);
    return found ? id : -1;
  }
};

using AllOps = OpList<
    PackMetadata, EmbeddingForward<float>, EmbeddingBackward<float>, ResidualForward<float>,
    ResidualBackward<float>, RmsNormForward<float>, RmsNormBackward<float>, LinearForward<float>,
    LinearInputGradient<float>, LinearWeightGradient<float>, RopeTable, Rope<float>,
    AttentionForward<float>, AttentionBackward<float>, ConvForward<float>, ConvBackward<float>,
    ScanForward<float>, ScanBackward<float>, GatedNormForward<float>, GatedNormBackward<float>,
    ActivationForward<float>, ActivationBackward<float>, CrossEntropyForward<float>,
    CrossEntropyBackward<float>, MicrobatchLoss, AccumulateGradient, ZeroGradient, GradientRowSums,
    GradientNorm, AdamW, Initialize, Digest, RoundWeights, Fingerprint, TensorCoreDots,
    EmbeddingForward<bf16>, EmbeddingBackward<bf16>, ResidualForward<bf16>, ResidualBackward<bf16>,
    RmsNormForward<bf16>, RmsNormBackward<bf16>, LinearForward<bf16>, LinearInputGradient<bf16>,
    LinearWeightGradient<bf16>, Rope<bf16>, AttentionForward<bf16>, AttentionBackward<bf16>,
    ConvForward<bf16>, ConvBackward<bf16>, ScanForward<bf16>, ScanBackward<bf16>,
    GatedNormForward<bf16>, GatedNormBackward<bf16>, ActivationForward<bf16>,
    ActivationBackward<bf16>, CrossEntropyForward<bf16>, CrossEntropyBackward<bf16>,
    RouterForward<float>, RouterForward<bf16>, ExpertCounts, RouterLoss, RouterBackward,
    RouterWeightGradient<float>, RouterWeightGradient<bf16>, ExpertLayout, Dispatch<float>,
    Dispatch<bf16>, Combine<float>, Combine<bf16>, CombineBackward<float>, CombineBackward<bf16>,
    DispatchBackward<float>, DispatchBackward<bf16>, ExpertForward<float>, ExpertForward<bf16>,
    ExpertInputGradient<float>, ExpertInputGradient<bf16>, ExpertWeightGradient<float>,
    ExpertWeightGradient<bf16>, CountPairs, UpdateExpertBias, PoisonMemory, AttentionTables,
    CudnnAttentionForward, CudnnAttentionBackward, OrderRowSums, Fp8ClearAmax, Fp8Amax,
    Fp8Exponent<e4m3>, Fp8Exponent<e5m2>, Fp8Roll<e4m3>, Fp8Roll<e5m2>, Fp8Cast<e4m3>,
    Fp8Cast<e5m2>, Fp8LinearForward, Fp8LinearInputGradient, Fp8LinearWeightGradient,
    Fp8Dots<e4m3, e4m3>, Fp8Dots<e4m3, e5m2>, Fp8Dots<e5m2, e4m3>, Fp8Dots<e5m2, e5m2>,
    Fp8Transpose, Fp8AmaxOfRanks, ExchangeLayout, MoveRows<float>, MoveRows<bf16>>;

}  // namespace lockstep
