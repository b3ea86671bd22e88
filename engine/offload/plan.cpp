#include "engine/offload/plan.h"

#include <algorithm>
#include <numeric>

#include "engine/offload/forecast.h"
#include "engine/plan/expert_buffer.h"
#include "engine/plan/regions.h"
#include "kernels/core/fault.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

struct SavedRow {
  OffloadModule module;
  const char* name;                           // Of the layer's tensor; "" is the residual stream that it reads.
  std::int64_t (*elements)(const Scenario&);  // Of a microbatch.
  bool wide = false;                          // fp32 in every precision.
  const OffloadModule* saved_too = nullptr;   // Another module needs it as well: it moves if both are listed.
};

std::int64_t rows(const Scenario& s, std::int64_t cols) { return s.data.pack_length * cols; }
std::int64_t residual(const Scenario& s) { return rows(s, s.model.hidden); }
std::int64_t heads(const Scenario& s) { return s.model.attention.heads; }
std::int64_t channels(const Scenario::Model::Mamba& m) { return m.d_inner + 2 * m.groups * m.state; }
std::int64_t gates(const Scenario& s) { return s.model.mlp.activation == MlpActivation::swiglu ? 2 : 1; }

constexpr OffloadModule kCoreAttention = OffloadModule::core_attn;

// In order of execution within a layer.
constexpr SavedRow kSaved[] = {
    {OffloadModule::attn_norm, "", residual},
    {OffloadModule::qkv_linear, "norm.out", residual},
    {OffloadModule::core_attn, "qkv",
     [](const Scenario& s) {
       return rows(s, (heads(s) + 2 * s.model.attention.kv_heads) * s.model.attention.head_dim);
     }},
    {OffloadModule::core_attn, "core_attn.lse", [](const Scenario& s) { return rows(s, heads(s)); }, true},
    {OffloadModule::attn_proj, "core_attn.out",
     [](const Scenario& s) { return rows(s, heads(s) * s.model.attention.head_dim); }, false, &kCoreAttention},
    {OffloadModule::mlp_norm, "", residual},
    {OffloadModule::mlp_fc1, "norm.out", residual},
    {OffloadModule::expert_fc1, "dispatched", [](const Scenario& s) { return ExpertBuffer(s).rows * s.model.hidden; }},
    {OffloadModule::moe_act, "expert_fc1",
     [](const Scenario& s) { return ExpertBuffer(s).rows * gates(s) * s.model.moe.hidden; }},
    {OffloadModule::mamba_in_proj, "norm.out", residual},
    {OffloadModule::mamba_scan, "in_proj",
     [](const Scenario& s) {
       const Scenario::Model::Mamba& m = s.model.mamba;
       return rows(s, m.d_inner + channels(m) + m.d_inner / m.head_dim);
     }},
    {OffloadModule::mamba_scan, "conv", [](const Scenario& s) { return rows(s, channels(s.model.mamba)); }},
    {OffloadModule::mamba_scan, "scan", [](const Scenario& s) { return rows(s, s.model.mamba.d_inner); }},
};

bool asked(const Scenario& scenario, OffloadModule module) {
  const std::vector<OffloadModule>& modules = scenario.offload.modules;
  return std::find(modules.begin(), modules.end(), module) != modules.end();
}

std::string name_of(const SavedRow& row, int layer) {
  if (*row.name != '\0') return "layers." + std::to_string(layer) + "." + row.name;
  return layer == 0 ? "embedding.out" : "layers." + std::to_string(layer - 1) + ".out";
}

// The first and last segment that holds a part of a layer.
struct Span {
  int first = -1, last = -1;
};
std::vector<Span> spans(const Scenario& scenario, const std::vector<Segment>& list) {
  std::vector<Span> of_layer(scenario.model.pattern.size());
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    for (const Part& part : list[static_cast<std::size_t>(i)].parts) {
      Span& span = of_layer[static_cast<std::size_t>(part.layer)];
      if (span.first < 0) span.first = i;
      span.last = i;
    }
  }
  return of_layer;
}

// Experts' copies may start only after the next graph was launched, or at the end of the pass if none follows.
int delayed(const std::vector<Segment>& list, int segment) {
  int next = segment + 1;
  while (next < static_cast<int>(list.size()) && list[static_cast<std::size_t>(next)].region < 0) ++next;
  return next;
}

// The norms read the residual stream at both ends of their layer and again at its begin, on the way back; everything
// else is made and read in the layer's last segment.
OffloadGroup place_group(const Scenario& scenario, const std::vector<Segment>& list, Span span, OffloadModule module,
                         int layer) {
  const bool norm = offload_row(module).kept == Kept::residual;
  OffloadGroup group{
      .module = module, .layer = layer, .ready = span.last, .leaves = span.last, .used = norm ? span.first : span.last};
  const bool experts = offload_row(module).kept == Kept::experts;
  if (scenario.offload.delay_until_cuda_graph && experts && !fault("offload-is-never-delayed"))
    group.leaves = delayed(list, span.last);
  return group;
}

void add_layer(const Scenario& scenario, const std::vector<Segment>& list, const std::vector<Span>& of_layer, int layer,
               OffloadPlan& plan) {
  const Span span = of_layer[static_cast<std::size_t>(layer)];
  for (const SavedRow& row : kSaved) {
    if (!has_module(scenario.model.pattern[static_cast<std::size_t>(layer)], row.module)) continue;
    if (!asked(scenario, row.module) || (row.saved_too && !asked(scenario, *row.saved_too))) continue;
    const bool bf16 = !row.wide && scenario.numerics.front() == Numerics::bf16;
    const std::int64_t bytes = row.elements(scenario) * (bf16 ? 2 : 4);
    if (bytes < scenario.offload.min_bytes + fault("offload-keeps-tensors-of-the-smallest-size")) continue;
    if (plan.groups.empty() || plan.groups.back().layer != layer || plan.groups.back().module != row.module) {
      plan.groups.push_back(place_group(scenario, list, span, row.module, layer));
    }
    const bool outside = *row.name == '\0';  // Written by the layer before, or by the embedding.
    const int written = !outside ? span.last : layer == 0 ? -1 : of_layer[static_cast<std::size_t>(layer) - 1].last;
    const std::int64_t rows = rows_follow_the_data(scenario, row.module) ? ExpertBuffer(scenario).rows : 0;
    plan.groups.back().tensors.push_back({name_of(row, layer), bytes, rows, written});
  }
}

void let_stay(const Scenario& scenario, OffloadPlan& plan) {
  const auto n = static_cast<std::int64_t>(plan.groups.size());
  std::int64_t stay = n * (1'000'000 - scenario.offload.fraction.millionths) / 1'000'000;
  if (fault("offload-fraction-rounds-up") && stay > 0) --stay;
  const std::int64_t first = fault("offload-fraction-counts-from-the-front") ? 0 : n - stay;
  for (std::int64_t i = first; i < first + stay; ++i) plan.groups[static_cast<std::size_t>(i)].stays = true;
}

// Pointers to the groups that move, in an order of their copies.
template <class Before>
std::vector<OffloadGroup*> in_order(OffloadPlan& plan, Before before) {
  std::vector<OffloadGroup*> moving;
  for (OffloadGroup& group : plan.groups) {
    if (!group.stays) moving.push_back(&group);
  }
  std::stable_sort(moving.begin(), moving.end(), [&](auto* a, auto* b) { return before(*a, *b); });
  return moving;
}

// What is still to leave when the last of the forward passes begins that open a step, one behind the other.
double backlog(const OffloadPlan& plan) {
  const double forward = std::accumulate(plan.seconds.forward.begin(), plan.seconds.forward.end(), 0.0);
  return static_cast<double>(plan.slots - 1) * std::max(0.0, copy_seconds(plan.bytes(), false) - forward);
}

// Copies to the host one after the other, each as soon as it can: until which segment it may take.
void time_leaving(OffloadPlan& plan, int most) {
  const std::vector<double>& forward = plan.seconds.forward;
  std::vector<double> begin(forward.size() + 1);
  for (std::size_t i = 0; i < forward.size(); ++i) begin[i + 1] = begin[i] + forward[i];
  double link = backlog(plan);
  for (OffloadGroup* group : in_order(plan, [](auto&a, auto&b) { return a.leaves < b.leaves; })) {
    const auto ready = static_cast<std::size_t>(group->ready), leaves = static_cast<std::size_t>(group->leaves);
    link = std::max({link, begin[ready + 1], begin[leaves]}) + copy_seconds(group->bytes());
    group->gone = group->leaves + 1;
    while (group->gone < std::min(plan.segments, group->leaves + most) &&
           begin[static_cast<std::size_t>(group->gone) + 1] < link) {
      ++group->gone;
    }
  }
}

// Copies back one before the other, each as late as it can: from which position on.
void time_returning(OffloadPlan& plan, int most) {
  std::vector<double> begin(static_cast<std::size_t>(plan.earliest()) + 1);
  for (int i = plan.earliest(); i > 0; --i) {
    const auto segment = static_cast<std::size_t>(std::min(i, plan.ahead(i)));
    begin[static_cast<std::size_t>(i) - 1] =
        begin[static_cast<std::size_t>(i)] +
        (i <= plan.segments ? plan.seconds.backward : plan.seconds.forward)[segment];
  }
  double latest = begin.front();
  for (OffloadGroup* group : in_order(plan, [](auto&a, auto&b) { return a.used < b.used; })) {
    latest = std::min(latest, begin[static_cast<std::size_t>(group->used)]) - copy_seconds(group->bytes());
    group->returns = group->used + 1;
    while (group->returns < std::min(plan.earliest(), group->used + most) &&
           begin[static_cast<std::size_t>(group->returns)] > latest) {
      ++group->returns;
    }
  }
}

// When a tensor's bytes are its own: forward until its copy is through, backward from the start of the copy back. Of a
// set one microbatch is on its way at a time, so slots share.
struct Lifetime {
  int written, left, returned, used;
  bool meets(const Lifetime& other) const {
    if (fault("offload-bins-shared-by-neighbours")) return false;
    const bool forward = written <= other.left && other.written <= left;
    const bool backward = used <= other.returned && other.used <= returned;
    return forward || backward;
  }
};

void assign_bins(OffloadPlan& plan) {
  plan.bins.clear();
  std::vector<std::vector<Lifetime>> taken;
  for (OffloadGroup& group : plan.groups) {
    if (group.stays) continue;
    for (OffloadTensor& tensor : group.tensors) {
      const int gone = fault("offload-bins-forget-the-delay") ? group.ready + 1 : group.gone;
      const Lifetime life{tensor.written, gone, group.returns, group.used};
      const auto fits = [&](std::size_t bin) {
        return plan.bins[bin] == tensor.bytes &&
               std::none_of(taken[bin].begin(), taken[bin].end(), [&](const Lifetime& l) { return l.meets(life); });
      };
      std::size_t bin = 0;
      while (bin < taken.size() && !fits(bin)) ++bin;
      if (bin == taken.size()) {
        taken.emplace_back();
        plan.bins.push_back(tensor.bytes);
      }
      taken[bin].push_back(life);
      tensor.bin = static_cast<int>(bin);
    }
  }
}

// Segments for each copy: the fewest with which a step takes hardly longer than with any number, each with the order of
// bins that is better then. With an integer max_inflight compute waits for more copies anyhow.
void time_copies(OffloadPlan& plan) {
  constexpr double kHardly = 1.002;
  const auto allowed = static_cast<int>(std::max<std::int64_t>(1, plan.max_inflight.value_or(plan.earliest())));
  const auto seconds_with = [&](int most) {
    time_leaving(plan, most);
    time_returning(plan, most);
    assign_bins(plan);
    plan.mirrored = false;
    const double plain = forecast(plan).seconds();
    plan.mirrored = true;
    const double mirrored = forecast(plan).seconds();
    plan.mirrored = mirrored < plain;
    return std::min(plain, mirrored);
  };
  std::vector<double> seconds;
  for (int most = 1; most <= std::min(allowed, std::max(1, plan.earliest())); ++most) {
    seconds.push_back(seconds_with(most));
  }
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const auto enough = std::find_if(seconds.begin(), seconds.end(), [&](double s) { return s <= kHardly * best; });
  seconds_with(static_cast<int>(enough - seconds.begin()) + 1);
}

}  // namespace

std::int64_t OffloadGroup::bytes() const {
  std::int64_t sum = 0;
  for (const OffloadTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

std::int64_t OffloadPlan::bytes() const {
  std::int64_t sum = 0;
  for (const OffloadGroup& group : groups) sum += group.stays ? 0 : group.bytes();
  return sum;
}

std::size_t OffloadPlan::bin_of(const OffloadTensor& tensor, int slot) const {
  const auto own = static_cast<std::size_t>(tensor.bin);
  const std::size_t first = static_cast<std::size_t>(slot % sets) * bins.size();
  if (!mirrored || slot / sets % 2 == 0) return first + own;
  const auto begin = bins.begin(), here = begin + tensor.bin;
  auto rank = std::count(begin, here, bins[own]);  // Among those of its size, counted from the end.
  std::size_t bin = bins.size();
  while (rank >= 0) rank -= bins[--bin] == bins[own];
  return first + bin;
}

std::int64_t OffloadPlan::device_bytes() const {
  std::int64_t sum = 0;
  for (const std::int64_t bin : bins) sum += bin;
  return sets * sum;
}

int OffloadPlan::prefetch() const {
  int most = 0;
  for (const OffloadGroup& group : groups) most = std::max(most, group.stays ? 0 : group.returns - group.used);
  return most;
}

std::optional<int> OffloadPlan::slot_to_come(const std::vector<Pass>& passes, std::size_t pass) const {
  if (empty() || sets == 1) return {};
  if (!passes[pass].forward || pass + 1 == passes.size() || passes[pass + 1].forward) return {};
  const auto slot = [&](std::size_t i) { return passes[i].microbatch % static_cast<int>(slots); };
  const bool same = slot(pass) % sets == slot(pass + 1) % sets && !fault("reload-into-bins-being-written");
  return same ? std::nullopt : std::optional(slot(pass + 1));
}

OffloadPlan plan_offload(const Scenario& scenario) {
  const std::vector<Segment> list = segments(scenario);
  const std::vector<Span> of_layer = spans(scenario, list);
  OffloadPlan plan;
  plan.segments = static_cast<int>(list.size());
  plan.microbatches = scenario.training.microbatches;
  plan.slots = scenario.training.in_flight;
  plan.sets = plan.slots > 2 ? 2 : 1;
  plan.max_inflight = scenario.offload.max_inflight;
  plan.slack = scenario.offload.pool_slack;
  for (int layer = 0; layer < static_cast<int>(of_layer.size()); ++layer) {
    add_layer(scenario, list, of_layer, layer, plan);
  }
  let_stay(scenario, plan);
  plan.seconds = pass_seconds(scenario, list);
  time_copies(plan);
  return plan;
}

}  // namespace lockstep
