// The bug that each mutation of the oracle and of the checker represents, and the judges that may
// name it. A row is for all names with its prefix; the longest prefix wins.
#pragma once

#include <array>

#include "harness/inject/fault_table.h"

namespace lockstep {

inline constexpr std::array kOracleRows{
    FaultRow{"documents-", kRandom, "activation: embedding.out"},
    FaultRow{"embedding-takes", kIndex, "activation: embedding.out"},
    FaultRow{"embedding-gradient", kOrder, "gradient: embedding.weight"},
    FaultRow{"tied-gradient", kOrder, "gradient: embedding.weight"},
    FaultRow{"dropout-", kRandom, "activation: .out"},
    FaultRow{"dropout-backward", kRandom, "gradient: fc2.weight proj.weight"},
    FaultRow{"norm-", kIndex, "activation: norm.out"},
    FaultRow{"norm-gradient", kIndex, "gradient: proj.weight fc2.weight"},
    FaultRow{"norm-gain-gradient", kOrder, "gradient: gain"},
    FaultRow{"norm-of-gradients", kOrder, "norm: norm"},
    FaultRow{"residual-is", kIndex, "activation: .out"},
    FaultRow{"residual-gradient", kIndex, "gradient: fc2.weight proj.weight"},
    FaultRow{"linear-splits", kOrder, "activation: .qkv .in_proj .fc1"},
    FaultRow{"linear-input-gradient", kOrder, "gradient: final_norm.gain"},
    FaultRow{"linear-weight-gradient", kOrder, "gradient: weight"},
    FaultRow{"rope-", kIndex, "activation: .qkv"},
    FaultRow{"rope-gradient", kIndex, "gradient: qkv.weight"},
    FaultRow{"attention-", kIndex, "activation: core_attn.out"},
    FaultRow{"attention-crosses", kLeak, "activation: core_attn.out"},
    FaultRow{"attention-gradient", kIndex, "gradient: qkv.weight"},
    FaultRow{"attention-key-gradient", kIndex, "gradient: qkv.weight"},
    FaultRow{"attention-query-gradient", kIndex, "gradient: qkv.weight"},
    FaultRow{"attention-value-gradient", kOrder, "gradient: qkv.weight"},
    FaultRow{"conv-", kIndex, "activation: .conv"},
    FaultRow{"conv-crosses", kLeak, "activation: .conv"},
    FaultRow{"conv-gradient", kIndex, "gradient: conv.bias conv.weight in_proj.weight"},
    FaultRow{"conv-bias-gradient", kOrder, "gradient: conv.bias"},
    FaultRow{"scan-", kIndex, "activation: .scan"},
    FaultRow{"scan-state-crosses", kLeak, "activation: .scan"},
    FaultRow{"scan-gradient", kIndex, "gradient: a_log conv dt_bias"},
    FaultRow{"scan-dt-gradient", kIndex, "gradient: dt_bias"},
    FaultRow{"scan-a-log-gradient", kIndex, "gradient: a_log"},
    FaultRow{"scan-b-gradient", kIndex, "gradient: conv.bias"},
    FaultRow{"scan-c-gradient", kIndex, "gradient: conv.bias"},
    FaultRow{"scan-d-gradient", kOrder, "gradient: .d"},
    FaultRow{"gated-norm-", kIndex, "activation: gated_norm.out"},
    FaultRow{"gated-norm-gradient", kIndex, "gradient: in_proj.weight"},
    FaultRow{"squared-relu-forgets", kIndex, "activation: .act"},
    FaultRow{"squared-relu-gradient", kIndex, "gradient: fc1.weight"},
    FaultRow{"swiglu-swaps", kIndex, "activation: .act"},
    FaultRow{"swiglu-gradient", kIndex, "gradient: fc1.weight"},
    FaultRow{"loss-", kLoss, "loss: loss; activation: token_loss"},
    FaultRow{"loss-gradient", kLoss, "gradient: final_norm.gain head.weight"},
    FaultRow{"accumulation-", kOrder, "gradient: gradient"},
    FaultRow{"clip-", kIndex, "norm: clip"},
    FaultRow{"adam-", kIndex, "weights: adamw"},
    FaultRow{"rate-", kIndex, "norm: learning_rate"},
    FaultRow{"initial-", kRandom, "activation: embedding.out .proj .fc2 .out_proj"},
    FaultRow{"fp8-experts", kExperts, "gradient: experts; activation: dy_amax; bits",
             kNeedsExperts},
    FaultRow{"fp8-head", kIndex, "activation: logits"},
    FaultRow{"moe-", kExperts, "bits", kNeedsExperts}};

inline constexpr std::array kCheckerRows{
    FaultRow{"columns-taken-for-whole-rows", kJudge, "checker: columns-of-one-buffer",
             kFixturesFirst},
    FaultRow{"external-records-are-lost", kJudge, "checker: a-wait-for-a-record-inside",
             kFixturesFirst},
    FaultRow{"graphs-run-in-the-order-captured", kJudge, "checker: a-fork-that-is-joined",
             kFixturesFirst},
    FaultRow{"host-orders-nothing", kJudge, "checker: staging-memory; hazard: host",
             kFixturesFirst},
    FaultRow{"ranks-share-one-host", kJudge, "checker: a-wait-of-another-rank", kFixturesFirst},
    FaultRow{"poison-is-a-value", kJudge, "checker: poison-is-read", kFixturesFirst},
    FaultRow{"readers-are-forgotten", kJudge, "checker: an-overwrite", kFixturesFirst},
    FaultRow{"streams-run-before-their-host", kJudge, "hazard: host; checker", kFixturesFirst}};

}  // namespace lockstep
