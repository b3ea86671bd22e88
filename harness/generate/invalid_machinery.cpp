// Near-legal: rules on offload, sharding, ranks and the checker.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/generate/invalid_table.h"
#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

// Offload of these, legal as far as steps, warm-up, joins and what is computed again go.
bool offload(Scenario& s, std::vector<OffloadModule> modules) {
  if (s.training.steps < 2 || (graphs(s) && s.cuda_graph.warmup_steps == 0)) return false;
  s.model.recompute.clear();
  s.offload.modules = std::move(modules);
  s.offload.max_inflight = 1;
  s.offload.delay_until_cuda_graph = s.offload.captured = false;
  return true;
}

bool blocks_differ(const Scenario& s) {
  const auto blocks = s.blocks();
  const auto has_mlp = [&](const Scenario::Block& block) {
    return s.model.pattern.substr(block.first, block.count).find('-') != std::string::npos;
  };
  return std::any_of(blocks.begin(), blocks.end(), has_mlp) &&
         !std::all_of(blocks.begin(), blocks.end(), has_mlp);
}

bool goes_so_deep(Scenario& s, std::int64_t depth) {
  s.training.in_flight = depth;
  s.cuda_graph.capture_passes = 0;  // L43
  return true;
}

// A unit of several blocks may lie in two chunks (L35), and single ones may differ in size (L33).
void take_single_blocks(Scenario& s) {
  s.fsdp.unit = {1};
  s.fsdp.unit_is_list = false;
  s.fsdp.persist_buf_on_alloc_fail = true;
}

bool order_chunks(Scenario& s, std::int64_t group) {
  s.parallel.schedule = PipelineSchedule::interleaved;
  s.parallel.group = group;
  return goes_so_deep(s, scheduled_depth(s));
}

constexpr InvalidEdit kEdits[] = {
    {"L24",
     [](Scenario& s, Choices& c) {
       if (has(s, 'E')) return false;
       if (c.one_in(2)) return offload(s, {OffloadModule::expert_fc1});
       s.model.recompute = {Recompute::moe_act};
       return true;
     }},
    {"L25",
     [](Scenario& s, Choices&) { return has(s, '*') && offload(s, {OffloadModule::attn_proj}); }},
    {"L26",
     [](Scenario& s, Choices&) {
       s.cuda_graph.modules.clear();
       s.model.moe = {};  // Whole layers need drop-and-pad.
       s.fsdp.persist_buf_on_alloc_fail = true;
       return partial(s) && has(s, '*') && offload(s, {OffloadModule::attn_norm});
     }},
    {"L27",
     [](Scenario& s, Choices&) {
       const bool fits = has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
       s.model.recompute = {Recompute::layernorm};
       return fits;
     }},
    {"L28",
     [](Scenario& s, Choices&) {
       s.model.recompute.clear();
       s.offload.modules = {OffloadModule::mlp_fc1};
       s.offload.max_inflight = 1;
       return has(s, '-') && graphs(s) && s.training.steps > 1 && s.cuda_graph.warmup_steps == 0;
     }},
    {"L29",
     [](Scenario& s, Choices&) {
       const bool fits = full(s) && has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
       s.offload.max_inflight = {};
       return fits;
     }},
    {"L30",
     [](Scenario& s, Choices&) {
       const bool fits = has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
       s.offload.delay_until_cuda_graph = true;
       return fits;
     }},
    {"L30",
     [](Scenario& s, Choices&) {
       const bool fits = has(s, '-') && offload(s, {OffloadModule::mlp_fc1});
       s.offload.captured = true;
       return fits && !captures_copies(s);
     }},
    {"L31",
     [](Scenario& s, Choices&) {
       if (graphs(s) || !has(s, '-') || !offload(s, {OffloadModule::mlp_fc1})) return false;
       s.training.steps = 1;
       s.training.eval_every = 0;
       s.training.change_microbatches_at.clear();
       s.training.in_flight = 1;
       s.training.optimizer.lr_warmup = 0;
       s.data.mask = {};
       s.data.kind = DataKind::lengths;
       s.data.distribution = {};
       s.data.documents = {{{2}}};
       s.data.gaps = 0;
       s.data.align = 1;
       return true;
     }},
    {"L32",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim;
       s.fsdp.double_buffer = false;
       return partial(s);
     }},
    {"L33",
     [](Scenario& s, Choices&) {
       s.fsdp = {};
       s.fsdp.strategy = Sharding::optim_grads_params;
       s.fsdp.persist_buf_on_alloc_fail = false;
       s.model.mlp.hidden = 5008;  // No other layer is as large, so that units differ.
       return partial(s) && blocks_differ(s);
     }},
    {"L34",
     [](Scenario& s, Choices&) {
       s.fsdp = {};
       s.fsdp.strategy = Sharding::optim_grads_params;
       s.fsdp.persist_buf_on_alloc_fail = false;
       s.fsdp.prefetch = 2;
       return !partial(s);
     }},
    {"L35",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim;
       s.fsdp.unit_is_list = true;
       const std::int64_t blocks = std::ssize(s.blocks());
       s.fsdp.unit = {blocks + 1};
       return blocks < 128;  // More is no number of blocks for the reader.
     }},
    {"L36",
     [](Scenario& s, Choices&) {
       s.fsdp.strategy = Sharding::optim;
       s.fsdp.reduction = Reduction::nccl;
       return true;
     }},
    {"L37",
     [](Scenario& s, Choices&) {
       s.parallel.data = 2;
       fit_any_capacity(s);
       return full(s);
     }},
    {"L38",
     [](Scenario& s, Choices& c) {
       s.offload = {};
       s.checker.delays = {{c.pick<DelayStream>({DelayStream::d2h, DelayStream::h2d}), {}, 1}};
       return true;
     }},
    {"L39",
     [](Scenario& s, Choices& c) {
       s.checker.schedule.kind = ScheduleKind::program;
       s.checker.schedule.count = c.between(2, 9);
       return true;
     }},
    {"L40",
     [](Scenario& s, Choices&) {
       s.expect.judge = "loss";
       return true;
     }},
    {"L44",
     [](Scenario& s, Choices& c) {
       s.training.resume_at = {{.step = c.one_in(2) ? s.training.steps : 0}};
       return true;
     }},
    {"L42",
     [](Scenario& s, Choices&) {
       s.model.recompute = {Recompute::mlp_act, Recompute::mlp};
       return has(s, '-');
     }},
    {"L41",
     [](Scenario& s, Choices&) {
       s.cuda_graph.evaluation = GraphEvaluation::replay;
       return s.cuda_graph.impl != GraphImpl::partial;
     }},
    {"L43",
     [](Scenario& s, Choices& c) {
       if (s.cuda_graph.evaluation == GraphEvaluation::replay) return false;
       s.cuda_graph.capture_passes = c.between(1, 3);
       return s.cuda_graph.impl != GraphImpl::partial;
     }},
    {"L45",
     [](Scenario& s, Choices&) {
       s.cuda_graph.shared_memory = true;
       return s.cuda_graph.impl != GraphImpl::partial;
     }},
    {"L52",
     [](Scenario& s, Choices& c) {
       const std::int64_t blocks = std::ssize(s.blocks());
       s.parallel.pipeline = 1;
       s.parallel.chunks = std::min<std::int64_t>(blocks + c.between(1, 3), 128);
       take_single_blocks(s);
       return s.parallel.chunks > blocks && order_chunks(s, 1);
     }},
    {"L53",
     [](Scenario& s, Choices& c) {
       s.parallel.pipeline = 1;
       s.parallel.chunks = std::ssize(s.blocks()) > 1 && c.one_in(2) ? 2 : 1;
       take_single_blocks(s);
       s.parallel.group = 1;
       s.parallel.schedule = s.parallel.chunks > 1 ? PipelineSchedule::one_forward_one_backward
                                                   : PipelineSchedule::interleaved;
       return goes_so_deep(s, scheduled_depth(s));
     }},
    {"L55",
     [](Scenario& s, Choices& c) {
       if (s.blocks().size() < 2) return false;
       s.parallel.pipeline = 1;
       s.parallel.chunks = 2;
       take_single_blocks(s);
       return order_chunks(s, fewest_microbatches(s.training) + c.between(1, 3));
     }},
    {"L56",
     [](Scenario& s, Choices& c) {
       s.parallel.expert = std::min<std::int64_t>(s.parallel.data + c.between(1, 3), 64);
       return expert_ranks(s) > s.parallel.data && !captures_exchange(s);
     }},
};

}  // namespace

std::span<const InvalidEdit> machinery_edits() { return kEdits; }

}  // namespace lockstep
