#include "harness/inject/fault_aliases.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

using Op = AliasOperator;
using Pass = CallPattern::Pass;
using Occurrence = CallPattern::Occurrence;

constexpr std::array kAliases{
    // The loader.
    FaultAlias{
        "compute-ignores-loaded-event", Op::drop_wait, {.stream = "compute", .event = "loaded"}},
    FaultAlias{"compute-ignores-step-state-event",
               Op::drop_wait,
               {.stream = "compute", .event = "state loaded"}},
    FaultAlias{"loaded-event-awaited-once",
               Op::drop_wait,
               {.stream = "compute",
                .event = "loaded",
                .occurrence = Occurrence::not_the_first_of_its_event}},
    FaultAlias{"loaded-event-on-the-wrong-stream",
               Op::move_record,
               {.stream = "loader", .event = "loaded"},
               "compute"},
    FaultAlias{"loaded-event-recorded-before-its-copy",
               Op::advance_record,
               {.stream = "loader", .event = "loaded"}},
    FaultAlias{
        "loader-ignores-consumed-event", Op::drop_wait, {.stream = "loader", .event = "consumed"}},
    FaultAlias{"loader-ignores-state-consumed-event",
               Op::drop_wait,
               {.stream = "loader", .event = "state consumed"}},
    FaultAlias{"staging-rewritten-before-its-copy", Op::drop_sync, {.event = "loaded"}},
    FaultAlias{"state-staging-rewritten-before-its-copy", Op::drop_sync, {.event = "state loaded"}},
    // The codes of fp8.
    FaultAlias{"fp8-amax-of-the-pass-before-stays",
               Op::drop_op,
               {.op = "fp8_clear_amax", .occurrence = Occurrence::not_the_first_of_its_output}},
    FaultAlias{"fp8-exponent-of-the-pass-before",
               Op::drop_op,
               {.op = "fp8_exponent", .occurrence = Occurrence::not_the_first_of_its_output}},
    // Costs alone: the second call gives what the first gave.
    FaultAlias{"attention-computed-twice", Op::repeat_op, {.op = "attention_forward"}},
    FaultAlias{"cross-entropy-computed-twice", Op::repeat_op, {.op = "cross_entropy_forward"}},
    FaultAlias{"gradient-norm-computed-twice", Op::repeat_op, {.op = "gradient_norm"}},
    FaultAlias{
        "loaded-event-awaited-twice", Op::repeat_wait, {.stream = "compute", .event = "loaded"}},
    FaultAlias{
        "loaded-event-recorded-twice", Op::repeat_record, {.stream = "loader", .event = "loaded"}},
    FaultAlias{"norm-computed-twice", Op::repeat_op, {.op = "rms_norm_forward"}},
    FaultAlias{"offload-copies-twice", Op::repeat_copy, {.stream = "d2h"}},
    FaultAlias{"pack-loaded-twice", Op::repeat_copy, {.stream = "loader"}},
    FaultAlias{"pack-metadata-built-twice", Op::repeat_op, {.op = "pack_metadata"}},
    FaultAlias{"scan-computed-twice", Op::repeat_op, {.op = "scan_forward"}},
    // Between ranks that are threads.
    FaultAlias{"exchange-ignores-what-a-peer-reads", Op::drop_wait, {.event = "peer has read"}},
    FaultAlias{"exchange-ignores-what-a-peer-writes", Op::drop_wait, {.event = "peer has written"}},
    // Sharding.
    FaultAlias{"buffers-destroyed-beside-gathers", Op::drop_sync, {.stream = "gather"}},
    FaultAlias{"gather-ignores-the-optimizer",
               Op::drop_wait,
               {.stream = "gather", .event = "weights written"}},
    FaultAlias{"gather-ignores-the-passes-before",
               Op::drop_wait,
               {.stream = "gather", .event = "weights released"}},
    FaultAlias{
        "gather-not-awaited", Op::drop_wait, {.stream = "compute", .event = "weights gathered"}},
    FaultAlias{"reduce-ignores-compute",
               Op::drop_wait,
               {.stream = "reduce", .event = "gradients written"}},
    FaultAlias{
        "reduce-runs-twice", Op::repeat_op, {.stream = "reduce", .op = "accumulate_gradient"}},
    FaultAlias{"totals-gathered-before-they-are-sums",
               Op::drop_wait,
               {.stream = "gather", .event = "totals summed"}},
    // Offloading.
    FaultAlias{"compute-ignores-reload", Op::drop_wait, {.stream = "compute", .event = "h2d done"}},
    FaultAlias{"compute-overwrites-what-is-leaving",
               Op::drop_wait,
               {.stream = "compute", .event = "d2h done", .not_part = "offload"}},
    FaultAlias{
        "delayed-offload-ignores-compute", Op::drop_wait, {.stream = "d2h", .event = "last read"}},
    FaultAlias{
        "offload-ignores-compute", Op::drop_wait, {.stream = "d2h", .event = "offload fork"}},
    FaultAlias{"reload-awaited-after-its-first-tensor",
               Op::advance_record,
               {.stream = "h2d", .event = "h2d done"},
               {},
               1},
    FaultAlias{"reload-ignores-compute", Op::drop_wait, {.stream = "h2d", .event = "offload fork"}},
    FaultAlias{
        "reload-ignores-the-copy-out", Op::drop_wait, {.stream = "h2d", .event = "d2h done"}},
    // Offloading by nodes of graphs.
    FaultAlias{"compute-ignores-the-end-of-a-graph",
               Op::drop_wait,
               {.stream = "compute", .event = "graph compute done"}},
    FaultAlias{"graph-does-not-join-its-copies",
               Op::drop_wait,
               {.stream = "compute", .event = "offload fork"}},
    FaultAlias{
        "launch-ignores-compute", Op::drop_wait, {.stream = "graph", .event = "launch fork"}},
    FaultAlias{
        "reload-node-ignores-the-bin", Op::drop_wait, {.stream = "h2d", .event = "bin left"}},
    // Graphs.
    FaultAlias{"replay-runs-twice", Op::repeat_launch, {.pass = Pass::backward}},
    FaultAlias{
        "replay-skipped-once", Op::drop_launch, {.occurrence = Occurrence::fourth_of_its_stream}},
    // The step.
    FaultAlias{"attention-tables-built-once",
               Op::drop_op,
               {.op = "attention_tables", .occurrence = Occurrence::not_the_first_of_its_output}},
    FaultAlias{"checkpoint-leaves-bf16-weights",
               Op::drop_op,
               {.op = "round_weights", .occurrence = Occurrence::not_the_first_of_its_output}},
    FaultAlias{"dispatch-reads-rows-before-their-copy",
               Op::drop_sync,
               {.stream = "compute", .part = "dispatch"}},
    FaultAlias{"gradients-not-zeroed-at-step-start",
               Op::drop_op,
               {.op = "zero_gradient", .not_part = "gradient_norm", .pass = Pass::any_step}},
    FaultAlias{"metadata-built-once",
               Op::drop_op,
               {.op = "pack_metadata", .occurrence = Occurrence::not_the_first_of_its_output}},
    FaultAlias{"overflow-grows-without-a-wait",
               Op::drop_sync,
               {.stream = "compute", .not_part = "dispatch", .pass = Pass::any_microbatch}},
    FaultAlias{"recompute-of-activations-left-out",
               Op::drop_op,
               {.op = "activation_forward", .part = "recompute"}},
    FaultAlias{"recompute-of-attention-left-out",
               Op::drop_op,
               {.op = "attention_forward", .part = "recompute"}},
    FaultAlias{"recompute-of-norms-left-out",
               Op::drop_op,
               {.op = "rms_norm_forward", .part = "recompute"}},
    FaultAlias{"recompute-of-products-left-out",
               Op::drop_op,
               {.op = "linear_forward", .part = "recompute"}},
    FaultAlias{"recompute-of-routing-left-out",
               Op::drop_op,
               {.op = "router_forward", .part = "recompute"}},
    FaultAlias{
        "recompute-of-scans-left-out", Op::drop_op, {.op = "scan_forward", .part = "recompute"}},
};

}  // namespace

std::span<const FaultAlias> fault_aliases() { return kAliases; }

const FaultAlias* fault_alias(std::string_view name) {
  const auto found = std::find_if(kAliases.begin(), kAliases.end(),
                                  [name](const FaultAlias& alias) { return alias.name == name; });
  return found == kAliases.end() ? nullptr : &*found;
}

}  // namespace lockstep
