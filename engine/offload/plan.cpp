#include "engine/offload/plan.h"

#include <algorithm>
#include <numeric>

#include "engine/offload/forecast.h"
#include "engine/plan/chunks.h"
#include "engine/plan/expert_buffer.h"
#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/row_segments.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

struct SavedRow {
  OffloadModule module;
  const char* name;  // The tensor in its layer; "" is the residual stream that the layer reads.
  std::int64_t (*elements)(const Scenario&);  // In one microbatch.
  bool wide = false;                          // fp32 in every precision.
  // Another module needs it as well: it moves if both are listed.
  const OffloadModule* saved_too = nullptr;
  // Not saved, and so not moved, where this module is computed again.
  const Recompute* computed_again = nullptr;
  // The layer whose input it is: where that saves codes, these move in its place.
  std::optional<Fp8Layer> input_of = {};
  // It moves only beside the codes of this layer.
  std::optional<Fp8Layer> beside_codes_of = {};
  // The tensor in its place where experts lie on several ranks; null: the same.
  const char* of_owner = nullptr;
};

std::int64_t rows(const Scenario& s, std::int64_t cols) { return s.data.pack_length * cols; }
std::int64_t residual(const Scenario& s) { return rows(s, s.model.hidden); }
std::int64_t heads(const Scenario& s) { return s.model.attention.heads; }
std::int64_t mixed(const Scenario& s) { return rows(s, heads(s) * s.model.attention.head_dim); }
std::int64_t channels(const Scenario::Model::Mamba& m) {
  return m.d_inner + 2 * m.groups * m.state;
}
std::int64_t gates(const Scenario& s) {
  return s.model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
}

constexpr OffloadModule kCoreAttention = OffloadModule::core_attn;
constexpr Recompute kAttentionAgain = Recompute::core_attn;

// In order of execution within a layer.
constexpr SavedRow kSaved[] = {
    {OffloadModule::attn_norm, "", residual},
    {OffloadModule::qkv_linear, "norm.out", residual, false, nullptr, nullptr,
     Fp8Layer::qkv_linear},
    {OffloadModule::core_attn, "qkv",
     [](const Scenario& s) {
       return rows(s, (heads(s) + 2 * s.model.attention.kv_heads) * s.model.attention.head_dim);
     }},
    {OffloadModule::core_attn, "core_attn.lse", [](const Scenario& s) { return rows(s, heads(s)); },
     true, nullptr, &kAttentionAgain},
    {OffloadModule::core_attn,
     "core_attn.out",
     mixed,
     false,
     nullptr,
     nullptr,
     {},
     Fp8Layer::attn_proj},
    {OffloadModule::attn_proj, "core_attn.out", mixed, false, &kCoreAttention, nullptr,
     Fp8Layer::attn_proj},
    {OffloadModule::mlp_norm, "", residual},
    {OffloadModule::mlp_fc1, "norm.out", residual, false, nullptr, nullptr, Fp8Layer::mlp_fc1},
    {OffloadModule::expert_fc1,
     "dispatched",
     [](const Scenario& s) { return ExpertBuffer(s).owner_rows * s.model.hidden; },
     false,
     nullptr,
     nullptr,
     Fp8Layer::expert_fc1,
     {},
     "owned"},
    {OffloadModule::moe_act, "expert_fc1",
     [](const Scenario& s) { return ExpertBuffer(s).owner_rows * gates(s) * s.model.moe.hidden; }},
    {OffloadModule::mamba_in_proj, "norm.out", residual, false, nullptr, nullptr,
     Fp8Layer::mamba_in_proj},
    {OffloadModule::mamba_scan, "in_proj",
     [](const Scenario& s) {
       const Scenario::Model::Mamba& m = s.model.mamba;
       return rows(s, m.d_inner + channels(m) + m.d_inner / m.head_dim);
     }},
    {OffloadModule::mamba_scan, "conv",
     [](const Scenario& s) { return rows(s, channels(s.model.mamba)); }},
    {OffloadModule::mamba_scan, "scan",
     [](const Scenario& s) { return rows(s, s.model.mamba.d_inner); }},
};

bool asked(const Scenario& scenario, OffloadModule module) {
  const std::vector<OffloadModule>& modules = scenario.offload.modules;
  return std::find(modules.begin(), modules.end(), module) != modules.end();
}

bool moves_codes(const Scenario& scenario, const SavedRow& row) {
  return row.input_of && saves_codes(scenario, *row.input_of);
}

// 0: the codes lie in one.
std::int64_t segments_of(const Scenario& scenario, const SavedRow& row) {
  const bool of_experts = row.module == OffloadModule::expert_fc1;
  return of_experts && moves_codes(scenario, row) ? scenario.model.moe.experts : 0;
}

std::int64_t bytes_of(const Scenario& scenario, const SavedRow& row) {
  if (const std::int64_t segments = segments_of(scenario, row))
    return scenario.model.hidden * transposed_columns(ExpertBuffer(scenario).owner_rows, segments);
  if (moves_codes(scenario, row)) return row.elements(scenario);
  return row.elements(scenario) * (!row.wide && stores_bf16(scenario) ? 2 : 4);
}

bool moves(const Scenario& scenario, const SavedRow& row) {
  const bool again =
      row.computed_again != nullptr && holds(scenario.model.recompute, *row.computed_again);
  const bool has_codes = !row.beside_codes_of || saves_codes(scenario, *row.beside_codes_of);
  const bool beside = faulty("fp8-attention-output-stays", has_codes, !row.beside_codes_of);
  const bool is_alone = row.saved_too == nullptr || moves_codes(scenario, row);
  return asked(scenario, row.module) && !again && beside &&
         (is_alone || asked(scenario, *row.saved_too));
}

std::string name_of(const Scenario& scenario, const SavedRow& row, int layer) {
  if (moves_codes(scenario, row))
    return "layers." + std::to_string(layer) + "." + word(*row.input_of) + ".x8";
  const bool is_of_owner = row.of_owner != nullptr && expert_ranks(scenario) > 1;
  const char* const name = is_of_owner ? row.of_owner : row.name;
  if (*name != '\0') return "layers." + std::to_string(layer) + "." + name;
  return layer == 0 ? "embedding.out" : "layers." + std::to_string(layer - 1) + ".out";
}

// The first and last segment that holds a part of a layer.
struct LayerSegments {
  int first = -1, last = -1;
};
std::vector<LayerSegments> segments_of_layers(const Scenario& scenario,
                                              const std::vector<Segment>& list) {
  std::vector<LayerSegments> of_layer(scenario.model.pattern.size());
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    for (const Part& part : at(list, i).parts) {
      LayerSegments& layer = at(of_layer, part.layer);
      if (layer.first < 0) layer.first = i;
      layer.last = i;
    }
  }
  return of_layer;
}

// A delayed copy is launched behind the next graph, or behind the head if no graph follows.
int next_graph(const std::vector<Segment>& list, int segment) {
  int next = segment + 1;
  while (next < static_cast<int>(list.size()) && at(list, next).region < 0) ++next;
  return next;
}

// A norm reads the residual stream at both ends of its layer in the forward pass, and at the
// layer's begin in the backward pass; every other tensor is written and read in the layer's last
// segment.
OffloadGroup make_group(const Scenario& scenario, const OffloadPlan& plan,
                        const std::vector<Segment>& list, LayerSegments at_layer,
                        OffloadModule module, int layer) {
  const Kept kept = offload_row(module).kept;
  const int reader = kept == Kept::residual ? at_layer.first : at_layer.last;
  const bool delays =
      faulty("offload-is-never-delayed", scenario.offload.delay_until_cuda_graph, false);
  const bool delayed = delays && kept == Kept::experts;
  OffloadGroup group{.module = module, .layer = layer, .last_read = at_layer.last};
  group.d2h.begin = delayed ? next_graph(list, at_layer.last) : at_layer.last;
  group.h2d.end = plan.backward_step(reader);
  return group;
}

// The step that writes the tensor of a row: the residual stream comes from the layer before, or
// from the embedding.
int writer_of(const SavedRow& row, const std::vector<LayerSegments>& of_layer, int layer) {
  if (*row.name != '\0') return at(of_layer, layer).last;
  return layer == 0 ? -1 : at(of_layer, layer - 1).last;
}

void add_layer(const Scenario& scenario, const std::vector<Segment>& list,
               const std::vector<LayerSegments>& of_layer, int layer, OffloadPlan& plan) {
  const std::int64_t min_bytes = scenario.offload.min_bytes;
  const std::int64_t least =
      faulty("offload-keeps-tensors-of-the-smallest-size", min_bytes, min_bytes + 1);
  for (const SavedRow& row : kSaved) {
    if (!has_module(at(scenario.model.pattern, layer), row.module)) continue;
    if (!moves(scenario, row)) continue;
    const std::int64_t bytes = bytes_of(scenario, row);
    if (bytes < least) continue;
    if (plan.groups.empty() || plan.groups.back().layer != layer ||
        plan.groups.back().module != row.module) {
      plan.groups.push_back(
          make_group(scenario, plan, list, at(of_layer, layer), row.module, layer));
    }
    const std::int64_t rows =
        rows_follow_the_data(scenario, row.module) ? ExpertBuffer(scenario).owner_rows : 0;
    plan.groups.back().tensors.push_back({name_of(scenario, row, layer), bytes, rows,
                                          segments_of(scenario, row),
                                          writer_of(row, of_layer, layer)});
  }
}

// Keeps groups of a chunk until the stage has kept `asked` bytes.
void keep_groups(std::int64_t asked, OffloadPlan& plan, std::int64_t& kept) {
  std::int64_t last = 0;
  for (OffloadGroup& group : plan.groups) {
    const std::int64_t enough = faulty("offload-delta-exceeded-by-two-groups", asked, asked + last);
    if (kept >= enough) return;
    group.is_resident = group.is_within_delta = true;
    last = group.bytes();
    kept += last;
  }
}

// The chunk, of those that are left, whose backward passes come first.
int next_to_keep(int left, int chunks) {
  return faulty("offload-delta-from-the-first-chunk", left - 1, chunks - left);
}

void mark_delta(const Scenario& scenario, int stage, std::vector<OffloadPlan>& plans) {
  const int times = faulty("offload-delta-of-the-next-stage", stage, stage + 1);
  const std::int64_t asked = times * scenario.offload.delta_bytes;
  const auto chunks = static_cast<int>(plans.size());
  std::int64_t kept = 0;
  for (int left = chunks; left > 0; --left) {
    kept = faulty("offload-delta-counted-by-chunk", kept, 0);
    keep_groups(asked, at(plans, next_to_keep(left, chunks)), kept);
  }
}

// The groups that the fraction counts: of all chunks, in the order of the layers.
std::vector<OffloadGroup*> groups_to_move(std::vector<OffloadPlan>& plans) {
  std::vector<OffloadGroup*> groups;
  for (OffloadPlan& plan : plans) {
    for (OffloadGroup& group : plan.groups) {
      const bool counts = faulty("offload-fraction-counts-the-delta", !group.is_resident, true);
      if (counts) groups.push_back(&group);
    }
  }
  return groups;
}

void mark_fraction(const Scenario& scenario, std::vector<OffloadPlan>& plans) {
  const std::vector<OffloadGroup*> groups = groups_to_move(plans);
  const std::int64_t n = std::ssize(groups);
  const std::int64_t floor = n * (1'000'000 - scenario.offload.fraction.millionths) / 1'000'000;
  const auto resident =
      faulty("offload-fraction-rounds-up", floor, std::max<std::int64_t>(0, floor - 1));
  const std::int64_t first = faulty("offload-fraction-counts-from-the-front", n - resident, 0);
  for (std::int64_t i = first; i < first + resident; ++i) at(groups, i)->is_resident = true;
}

// Pointers to the groups that move, in an order of their copies.
template <class Before>
std::vector<OffloadGroup*> moving_groups(OffloadPlan& plan, Before before) {
  std::vector<OffloadGroup*> moving;
  for (OffloadGroup& group : plan.groups) {
    if (!group.is_resident) moving.push_back(&group);
  }
  const auto by_pointer = [&](const OffloadGroup* a, const OffloadGroup* b) {
    return before(*a, *b);
  };
  std::stable_sort(moving.begin(), moving.end(), by_pointer);
  return moving;
}

// Seconds for which the d2h stream is still busy when the last of the forward passes begins that
// open a training step and follow each other directly.
double d2h_backlog(const OffloadPlan& plan) {
  const double forward =
      std::accumulate(plan.seconds.forward.begin(), plan.seconds.forward.end(), 0.0);
  const double copies = copy_seconds(plan.bytes(), Link::alone);
  return static_cast<double>(plan.slots - 1) * std::max(0.0, copies - forward);
}

// d2h copies run one after the other, each as soon as it can. Sets the last step of each, `most`
// steps at most.
void time_d2h(OffloadPlan& plan, int most) {
  const std::vector<double>& forward = plan.seconds.forward;
  std::vector<double> begin(forward.size() + 1);
  for (std::size_t i = 0; i < forward.size(); ++i) begin[i + 1] = begin[i] + forward[i];
  const auto earlier = [](const OffloadGroup& a, const OffloadGroup& b) {
    return a.d2h.begin < b.d2h.begin;
  };
  double complete = d2h_backlog(plan);
  for (OffloadGroup* group : moving_groups(plan, earlier)) {
    StepRange& d2h = group->d2h;
    const double start =
        std::max({complete, at(begin, group->last_read + 1), at(begin, d2h.begin)});
    complete = start + copy_seconds(group->bytes());
    const int latest = std::min(plan.segments, d2h.begin + most);
    d2h.end = d2h.begin + 1;
    while (d2h.end < latest && at(begin, d2h.end + 1) < complete) ++d2h.end;
  }
}

// Seconds of a pass' steps in their order, without that of a head that lies elsewhere.
std::vector<double> seconds_of_pass(const OffloadPlan& plan, bool forward) {
  const std::vector<double>& of_segments = forward ? plan.seconds.forward : plan.seconds.backward;
  std::vector<double> list;
  for (int i = 0; i <= plan.segments; ++i) {
    const int step = forward ? i : plan.segments + 1 + i;
    if (plan.steps_behind(step)) list.push_back(at(of_segments, plan.segment_of(step)));
  }
  return list;
}

// Sets in which steps of other passes h2d copies may begin.
void find_leads(const std::vector<Pass>& passes, std::vector<OffloadPlan>& plans) {
  for (std::size_t i = 0; i + 1 < passes.size(); ++i) {
    OffloadPlan& plan = at(plans, passes[i + 1].chunk);
    if (!plan.slot_to_come(passes, i)) continue;
    std::vector<double> before = seconds_of_pass(at(plans, passes[i].chunk), passes[i].forward);
    std::reverse(before.begin(), before.end());
    const int steps = std::min(static_cast<int>(before.size()), plan.segments + 1);
    for (int behind = 0; behind < steps; ++behind) {
      if (behind == std::ssize(plan.lead)) plan.lead.push_back(at(before, behind));
      at(plan.lead, behind) = std::min(at(plan.lead, behind), at(before, behind));
    }
  }
}

// h2d copies run one after the other, each as late as it can. Sets the first step of each, `most`
// steps at most.
void time_h2d(OffloadPlan& plan, int most) {
  const int first = plan.first_h2d_step(), last = plan.last_step();
  std::vector<double> begin(static_cast<std::size_t>(last) + 1);
  for (int step = first; step < last; ++step) {
    const double seconds = plan.in_forward(step) ? at(plan.lead, plan.segments - step)
                                                 : at(plan.seconds.backward, plan.segment_of(step));
    at(begin, step + 1) = at(begin, step) + seconds;
  }
  const auto later = [](const OffloadGroup& a, const OffloadGroup& b) {
    return a.h2d.end > b.h2d.end;
  };
  double start = at(begin, last);
  for (OffloadGroup* group : moving_groups(plan, later)) {
    StepRange& h2d = group->h2d;
    start = std::min(start, at(begin, h2d.end)) - copy_seconds(group->bytes());
    const int earliest = plan.h2d_step(h2d.end, most);
    h2d.begin = plan.h2d_step(h2d.end, 1);
    while (h2d.begin > earliest && at(begin, h2d.begin) > start) --h2d.begin;
  }
}

// The steps in which a tensor needs its device buffer: in the forward pass from its writer to the
// end of its d2h copy, in the backward pass from the begin of its h2d copy to its reader. Only one
// microbatch at a time is in the forward pass and one in the backward pass of a set, so the same
// buffers serve every slot of the set.
struct Lifetime {
  StepRange forward, backward;
  bool overlaps(const Lifetime& other) const {
    const bool both = forward.overlaps(other.forward) || backward.overlaps(other.backward);
    return faulty("offload-bins-shared-by-neighbours", both, false);
  }
};

// First fit: the first buffer of the tensor's size whose tensors are never alive at the same time.
void assign_buffers(OffloadPlan& plan) {
  plan.buffers.clear();
  std::vector<std::vector<Lifetime>> taken;
  for (OffloadGroup& group : plan.groups) {
    if (group.is_resident) continue;
    const int copied = faulty("offload-bins-forget-the-delay", group.d2h.end, group.last_read + 1);
    for (OffloadTensor& tensor : group.tensors) {
      const Lifetime life{{tensor.written, copied}, group.h2d};
      const auto fits = [&](std::size_t buffer) {
        return plan.buffers[buffer] == tensor.bytes &&
               std::none_of(taken[buffer].begin(), taken[buffer].end(),
                            [&](const Lifetime& other) { return other.overlaps(life); });
      };
      std::size_t buffer = 0;
      while (buffer < taken.size() && !fits(buffer)) ++buffer;
      if (buffer == taken.size()) {
        taken.emplace_back();
        plan.buffers.push_back(tensor.bytes);
      }
      taken[buffer].push_back(life);
      tensor.buffer = static_cast<int>(buffer);
    }
  }
}

// Times the copies with at most so many steps each, in the faster of the two orders of each chunk's
// buffers; returns the seconds of a modelled training step.
double time_copies(std::vector<OffloadPlan>& plans, const std::vector<Pass>& passes, int most) {
  for (OffloadPlan& plan : plans) {
    time_d2h(plan, most);
    time_h2d(plan, most);
    assign_buffers(plan);
    plan.reversed = false;
  }
  double best = forecast(plans, passes).seconds();
  for (OffloadPlan& plan : plans) {
    plan.reversed = true;
    const double reversed = forecast(plans, passes).seconds();
    plan.reversed = reversed < best;
    best = std::min(best, reversed);
  }
  return best;
}

// Chooses the most steps that a copy of the stage may have: the fewest whose modelled time is
// within 0.2 % of the best. With an integer max_inflight compute waits for more copies regardless.
void choose_copy_steps(std::vector<OffloadPlan>& plans, const std::vector<Pass>& passes) {
  constexpr double kTolerance = 1.002;
  int longest = 1;
  for (const OffloadPlan& plan : plans) longest = std::max(longest, plan.longest_h2d());
  const std::int64_t allowed =
      std::max<std::int64_t>(1, plans.front().max_inflight.value_or(longest));
  std::vector<double> seconds;
  for (int most = 1; most <= std::min<std::int64_t>(allowed, longest); ++most)
    seconds.push_back(time_copies(plans, passes, most));
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const auto enough = std::find_if(seconds.begin(), seconds.end(),
                                   [&](double s) { return s <= kTolerance * best; });
  time_copies(plans, passes, static_cast<int>(enough - seconds.begin()) + 1);
}

// A group can be captured if it leaves and is read in captured regions, if its rows are static and
// if it is not delayed. The position of its copy back may nevertheless be the head's, an eager
// segment's or in the pass before: that copy alone is eager then.
void mark_captured(const std::vector<Segment>& list, OffloadPlan& plan) {
  const auto in_graph = [&](int step) {
    const int segment = plan.segment_of(step);
    return segment < plan.segments && at(list, segment).region >= 0;
  };
  for (OffloadGroup& group : plan.groups) {
    const bool rows_are_static =
        std::all_of(group.tensors.begin(), group.tensors.end(),
                    [](const OffloadTensor& tensor) { return tensor.rows == 0; });
    group.leaves_in_graph = !group.is_resident && rows_are_static &&
                            group.d2h.begin == group.last_read && in_graph(group.last_read) &&
                            in_graph(group.h2d.end);
    group.h2d.begin = faulty("reload-in-the-graph-that-reads-it", group.h2d.begin,
                             group.leaves_in_graph ? group.h2d.end : group.h2d.begin);
    group.returns_in_graph =
        group.leaves_in_graph && !plan.in_forward(group.h2d.begin) && in_graph(group.h2d.begin);
  }
}

void mark_captured(const std::vector<std::vector<Segment>>& lists,
                   std::vector<OffloadPlan>& plans) {
  bool some = false;
  for (OffloadPlan& plan : plans) {
    mark_captured(at(lists, plan.chunk), plan);
    for (const OffloadGroup& group : plan.groups) some |= group.leaves_in_graph;
  }
  for (OffloadPlan& plan : plans) plan.captured = some;
}

}  // namespace

std::int64_t OffloadGroup::bytes() const {
  std::int64_t sum = 0;
  for (const OffloadTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

std::int64_t OffloadPlan::bytes() const {
  std::int64_t sum = 0;
  for (const OffloadGroup& group : groups) sum += group.is_resident ? 0 : group.bytes();
  return sum;
}

std::size_t OffloadPlan::buffer_of(const OffloadTensor& tensor, int slot) const {
  const std::size_t first = static_cast<std::size_t>(slot % sets) * buffers.size();
  const std::size_t own = tensor.buffer;
  if (!reversed || slot / sets % 2 == 0) return first + own;
  // The i-th buffer of its size becomes the i-th from the end.
  const auto begin = buffers.begin();
  auto rank = std::count(begin, begin + tensor.buffer, buffers[own]);
  std::size_t buffer = buffers.size();
  while (rank >= 0) rank -= buffers[--buffer] == buffers[own];
  return first + buffer;
}

std::int64_t OffloadPlan::device_bytes() const {
  return sets * std::accumulate(buffers.begin(), buffers.end(), std::int64_t{0});
}

int OffloadPlan::h2d_step(int reader, int count) const {
  int step = reader - count;
  if (!has_head && step <= backward_step(segments)) --step;
  return std::max(step, first_h2d_step());
}

std::optional<int> OffloadPlan::steps_behind(int step) const {
  if (!has_head && segment_of(step) == segments) return {};
  const int last = has_head ? segments : segments - 1;
  return in_forward(step) ? last - step : last_step() - step;
}

int OffloadPlan::prefetch() const {
  int most = 0;
  for (const OffloadGroup& group : groups) {
    if (group.is_resident) continue;
    const bool over_the_head = !has_head && group.h2d.begin <= backward_step(segments);
    most = std::max(most, group.h2d.length() - (over_the_head ? 1 : 0));
  }
  return most;
}

std::optional<int> OffloadPlan::slot_to_come(const std::vector<Pass>& passes,
                                             std::size_t pass) const {
  if (pass + 1 == passes.size() || bytes() == 0) return {};
  const Pass &before = passes[pass], &next = passes[pass + 1];
  if (next.forward || next.chunk != chunk) return {};
  const int next_slot = next.microbatch % static_cast<int>(slots);
  const bool waits = faulty("reload-waits-for-its-own-pass", false, true);
  if (before.chunk != chunk) return waits ? std::nullopt : std::optional(next_slot);
  if (!before.forward || sets == 1) return {};
  const int slot = before.microbatch % static_cast<int>(slots);
  const bool same_set =
      faulty("reload-into-bins-being-written", slot % sets == next_slot % sets, false);
  return same_set ? std::nullopt : std::optional(next_slot);
}

bool OffloadPlan::moves_input() const {
  return std::any_of(groups.begin(), groups.end(), [](const OffloadGroup& group) {
    return !group.is_resident &&
           std::any_of(group.tensors.begin(), group.tensors.end(),
                       [](const OffloadTensor& tensor) { return tensor.written < 0; });
  });
}

// The groups of one chunk, on the time line of its own segments.
static OffloadPlan groups_of_chunk(const Scenario& scenario, const std::vector<Segment>& own,
                                   const Chunk& chunk) {
  const std::vector<LayerSegments> of_layer = segments_of_layers(scenario, own);
  OffloadPlan plan;
  plan.stage = chunk.stage;
  plan.chunk = chunk.number;
  plan.segments = static_cast<int>(own.size());
  plan.has_head = chunk.is_last;
  plan.seconds = pass_seconds(scenario, own, chunk.is_last);
  plan.microbatches = scenario.training.microbatches;
  plan.slots = chunk.slots;
  plan.sets = plan.slots > 2 ? 2 : 1;
  plan.max_inflight = scenario.offload.max_inflight;
  plan.pool_slack = scenario.offload.pool_slack;
  for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer) {
    add_layer(scenario, own, of_layer, layer, plan);
  }
  return plan;
}

std::vector<OffloadPlan> plan_offloads(const Scenario& scenario, int stage) {
  const std::vector<Segment> list = segments(scenario);
  std::vector<OffloadPlan> plans;
  std::vector<std::vector<Segment>> segments_of_chunks;
  const std::vector<Chunk> chunks = chunks_of(scenario, list, stage);
  for (const Chunk& chunk : chunks) {
    segments_of_chunks.emplace_back(list.begin() + chunk.first_segment,
                                    list.begin() + chunk.end_segment);
    plans.push_back(groups_of_chunk(scenario, segments_of_chunks.back(), chunk));
  }
  mark_delta(scenario, stage, plans);
  mark_fraction(scenario, plans);
  const auto passes = [&](std::int64_t microbatches) {
    return passes_of_step(scenario, 0, static_cast<int>(microbatches), stage);
  };
  find_leads(passes(scenario.training.microbatches), plans);
  for (const auto& change : scenario.training.change_microbatches_at)
    find_leads(passes(change.microbatches), plans);
  choose_copy_steps(plans, passes(scenario.training.microbatches));
  if (scenario.offload.captured) mark_captured(segments_of_chunks, plans);
  return plans;
}

OffloadPlan plan_offload(const Scenario& scenario) { return plan_offloads(scenario).front(); }

}  // namespace lockstep
