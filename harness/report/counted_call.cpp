#include "harness/report/counted_call.h"

#include <map>

#include "scenarios/counter.h"

namespace lockstep {

std::string counted_call(const std::string &reason) {
  using enum Counter;
  static const char *const kCopies = "copies of offloading (offload, reload)",
                           *const kPairs = "count_pairs", *const kLaunches = "launches of graphs",
                           *const kFallbacks = "passes that run eagerly where graphs are asked for",
                           *const kCaptures = "captures of graphs",
                           *const kGathers = "gathers of weights";
  static const std::map<Counter, const char *> calls{
      {graphs_captured, kCaptures},
      {recaptures, kCaptures},
      {graphs_evicted, "destroyed graphs"},
      {graph_replays, kLaunches},
      {evaluation_replays, kLaunches},
      {eager_fallbacks, kFallbacks},
      {fallbacks_documents, kFallbacks},
      {fallbacks_length, kFallbacks},
      {fallbacks_cut, kFallbacks},
      {max_outstanding, "forward passes before the first backward pass"},
      {slots_live, "forward passes before the first backward pass"},
      {evaluations, "the forward passes of evaluations"},
      {host_syncs, "waits of the host"},
      {tokens_dropped, kPairs},
      {pairs_routed, kPairs},
      {experts_used, kPairs},
      {expert_rows_read, "the copy of the experts' rows to the host, before dispatch"},
      {ops_recomputed, "ops that a backward pass runs again (recompute)"},
      {attention_by_cudnn, "cudnn_attention_forward and cudnn_attention_backward"},
      {fp8_products, "fp8_linear_forward and the two products of its backward pass"},
      {fp8_casts, "fp8_cast of activations and their gradients"},
      {weight_casts, "fp8_cast of weights"},
      {amax_exchanges, "exchanges of amaxes"},
      {bytes_planned, kCopies},
      {bytes_offloaded, kCopies},
      {bytes_reloaded, kCopies},
      {offloads_in_flight, kCopies},
      {offloads_delayed, kCopies},
      {spare_buffers, kCopies},
      {copies_in_graphs, kCopies},
      {copy_bytes_in_graphs, kCopies},
      {collectives, "exchanges of the ranks"},
      {collectives_in_graphs, "exchanges of the ranks in graphs"},
      {persistent_buffers, kGathers},
      {late_gathers, kGathers},
      {capture_passes, "the passes before a capture"},
      {delays_applied, "delays"},
      {bytes_poisoned_padding, "poison"},
      {resumes, "save and load"},
      {bytes_shared, "the placement of tensors in shared memory"}};
  const std::size_t is = reason.find(" is ");
  if (is == std::string::npos) return "";
  const auto counter = counter_from_text(reason.substr(0, is));
  const auto found = counter ? calls.find(*counter) : calls.end();
  return found == calls.end() ? "" : found->second;
}

}  // namespace lockstep
