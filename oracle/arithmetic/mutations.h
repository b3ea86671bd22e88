// Planted errors, which test the judge itself. A name that is not in the list does not compile.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::oracle {

inline constexpr std::string_view kMutations[] = {
    "documents-are-numbered-from-one",
    "embedding-takes-the-token-before",
    "embedding-gradient-sums-upwards",
    "embedding-gradient-forgets-repeated-tokens",
    "tied-gradient-forgets-the-embedding",
    "dropout-forgets-its-scale",
    "dropout-ignores-the-document",
    "dropout-ignores-the-step",
    "dropout-ignores-the-layer",
    "dropout-counts-rows-of-the-pack",
    "dropout-backward-draws-another-mask",
    "norm-forgets-eps",
    "norm-divides-by-one-less",
    "norm-forgets-its-gain",
    "norm-gradient-forgets-the-mean",
    "norm-gain-gradient-is-one-chain",
    "residual-is-forgotten",
    "residual-gradient-skips-the-branch",
    "linear-splits-its-sum",
    "linear-input-gradient-splits-its-sum",
    "linear-weight-gradient-misses-the-first-row",
    "linear-weight-gradient-sums-documents-apart",
    "rope-positions-run-through-the-pack",
    "rope-swaps-the-sine",
    "rope-gradient-turns-forwards",
    "attention-crosses-documents",
    "attention-sees-the-next-token",
    "attention-forgets-its-scale",
    "attention-takes-another-kv-head",
    "attention-forgets-to-rescale",
    "attention-gradient-forgets-delta",
    "attention-key-gradient-forgets-a-head",
    "attention-query-gradient-is-not-scaled",
    "attention-value-gradient-takes-heads-downwards",
    "conv-crosses-documents",
    "conv-turns-its-taps",
    "conv-forgets-its-bias",
    "conv-gradient-forgets-silu",
    "conv-gradient-turns-its-taps",
    "conv-bias-gradient-is-one-chain",
    "scan-state-crosses-documents",
    "scan-chunks-start-at-the-pack",
    "scan-forgets-dt-bias",
    "scan-decay-includes-its-own-step-twice",
    "scan-takes-the-next-group",
    "scan-forgets-the-carried-state",
    "scan-forgets-the-skip",
    "scan-state-is-not-decayed",
    "scan-gradient-forgets-the-next-chunk",
    "scan-dt-gradient-forgets-the-decay",
    "scan-a-log-gradient-forgets-dt",
    "scan-b-gradient-forgets-a-head",
    "scan-c-gradient-forgets-the-state",
    "scan-d-gradient-is-one-chain",
    "gated-norm-forgets-its-groups",
    "gated-norm-gates-after-the-norm",
    "gated-norm-gradient-forgets-dsilu",
    "squared-relu-forgets-the-square",
    "squared-relu-gradient-forgets-two",
    "swiglu-swaps-gate-and-up",
    "swiglu-gradient-forgets-dsilu",
    "moe-ties-go-to-the-highest-index",
    "moe-choice-forgets-the-bias",
    "moe-bias-enters-the-weight",
    "moe-bias-feeds-the-busy",
    "moe-bias-counts-after-dropping",
    "moe-bias-counts-the-last-microbatch",
    "moe-weights-are-renormalised-the-other-way",
    "moe-weights-are-renormalised-after-dropping",
    "moe-weight-gradient-forgets-the-sum",
    "moe-softmax-gradient-forgets-the-mean",
    "moe-sigmoid-gradient-forgets-a-factor",
    "moe-routes-padding-rows",
    "moe-router-reads-the-bf16-copy",
    "moe-capacity-is-rounded-down",
    "moe-capacity-is-one-more",
    "moe-capacity-counts-rows-of-documents",
    "moe-priority-takes-slots-first",
    "moe-groups-of-rows-count-from-the-buffer",
    "fp8-experts-rows-count-from-the-buffer",
    "fp8-head-multiplies-codes",
    "moe-combine-takes-slots-downwards",
    "moe-shared-expert-is-forgotten",
    "moe-expert-gradient-forgets-the-weight",
    "moe-input-gradient-forgets-the-router",
    "moe-losses-count-padding-rows",
    "moe-losses-forget-the-microbatches",
    "moe-aux-loss-counts-after-dropping",
    "moe-z-loss-gradient-forgets-two",
    "loss-counts-masked-targets",
    "loss-counts-every-row",
    "loss-normalises-by-the-microbatch",
    "loss-gradient-forgets-the-target",
    "loss-gradient-is-divided",
    "loss-sums-in-one-chain",
    "accumulation-keeps-the-last-microbatch",
    "accumulation-takes-microbatches-downwards",
    "norm-of-gradients-misses-a-parameter",
    "norm-of-gradients-is-one-chain",
    "clip-is-forgotten",
    "clip-scales-to-twice-the-limit",
    "adam-forgets-bias-correction",
    "adam-counts-steps-from-zero",
    "adam-adds-eps-under-the-root",
    "adam-decays-vectors-too",
    "adam-forgets-decay",
    "adam-keeps-no-momentum",
    "rate-forgets-the-warm-up",
    "rate-never-decays",
    "initial-weights-take-another-parameter",
    "initial-output-weights-are-not-scaled",
};

// A name, converted to its index at compile time.
struct MutationName {
  int index;
  consteval MutationName(const char* name) : index(0) {  // NOLINT(google-explicit-constructor)
    while (kMutations[index] != name) ++index;
  }
};

// The error that is planted, if any.
class Mutant {
 public:
  Mutant() = default;
  explicit Mutant(
      const std::string& name);  // Throws std::invalid_argument for a name that is not in the list.
  bool operator()(MutationName name) const { return name.index == index_; }

 private:
  int index_ = -1;
};

}  // namespace lockstep::oracle
