#include "kernels/fault.h"

#include <string>

namespace lockstep {
namespace {
std::string& name_of_fault() {
  static std::string name;
  return name;
}
}  // namespace

void plant_fault(std::string_view name) { name_of_fault() = name; }
std::string_view planted_fault() { return name_of_fault(); }

std::vector<std::string> kernel_faults() {
  return {"pack-metadata-ignores-gaps",
          "pack-metadata-positions-never-restart",
          "pack-metadata-number-of-first-slot",
          "embedding-reads-next-token",
          "embedding-gradient-last-token-wins",
          "dropout-ignores-position",
          "dropout-ignores-step",
          "dropout-keeps-below-threshold",
          "dropout-forgets-scale",
          "residual-forgets-last-channel",
          "residual-backward-forgets-dropout-mask",
          "residual-backward-doubles-first-row",
          "rms-norm-forgets-eps",
          "rms-norm-keeps-padding-rows",
          "rms-norm-backward-drops-mean-term",
          "rms-norm-backward-drops-residual",
          "column-sum-ignores-blocks",
          "linear-drops-last-input",
          "linear-input-gradient-drops-last-output",
          "linear-weight-gradient-sums-backwards",
          "linear-weight-gradient-drops-first-row",
          "rope-table-starts-at-one",
          "rope-skips-last-key-head",
          "rope-positions-of-the-pack",
          "rope-backward-rotates-forward",
          "attention-backward-forgets-query-heads-of-group",
          "attention-backward-forgets-key-scale",
          "attention-backward-forgets-delta",
          "attention-sees-the-next-token",
          "attention-leaks-previous-document",
          "attention-forgets-rescale-between-blocks",
          "attention-query-heads-share-first-kv-head",
          "attention-backward-keeps-padding-rows",
          "conv-tap-crosses-boundary",
          "conv-newest-tap-first",
          "conv-backward-crosses-boundary",
          "conv-weight-gradient-crosses-boundary",
          "scan-keeps-state-across-documents",
          "scan-drops-state-between-chunks",
          "scan-forgets-dt-bias",
          "scan-state-without-decay",
          "scan-backward-forgets-chunk-end",
          "scan-backward-forgets-intra-chunk-dc",
          "scan-backward-drops-state-gradient",
          "gated-norm-mean-over-all-groups",
          "gated-norm-gates-after-norm",
          "gated-norm-backward-forgets-gate-slope",
          "activation-confuses-kinds",
          "activation-forgets-square",
          "activation-backward-reads-next-row",
          "cross-entropy-sums-sequentially",
          "cross-entropy-reads-wrong-target",
          "cross-entropy-gradient-unscaled",
          "cross-entropy-gradient-keeps-masked-rows",
          "microbatch-loss-is-mean-of-rows",
          "accumulate-overwrites",
          "zero-gradient-keeps-first-row",
          "gradient-row-sums-drop-last-column",
          "gradient-norm-forgets-root",
          "adamw-forgets-clip",
          "adamw-forgets-bias-correction",
          "adamw-forgets-decay",
          "initialize-ignores-parameter",
          "digest-ignores-place"};
}

}  // namespace lockstep
