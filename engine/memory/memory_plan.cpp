#include "engine/memory/memory_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

std::int64_t rounded_up(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = MemoryPlan::kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::set<int> microbatch_counts(const Scenario& scenario) {
  const Scenario::Training& training = scenario.training;
  const int longest = static_cast<int>(2 * training.in_flight - 1);
  const std::set<std::int64_t> first{training.microbatches};
  std::set<std::int64_t> all = first;
  for (const Scenario::MicrobatchChange& change : training.change_microbatches_at)
    all.insert(change.microbatches);
  all = faulty("shared-memory-of-the-first-count", all, first);
  std::set<int> counts;
  for (const std::int64_t count : all)
    counts.insert(static_cast<int>(std::min<std::int64_t>(count, longest)));
  return counts;
}

// All orders one after the other, each pass with the steps of both passes of a microbatch: that
// makes the moments of a forward and of a backward pass alike to count.
class Calendar {
 public:
  Calendar(const Scenario& scenario, int segments)
      : orders_(pass_orders(scenario)),
        steps_(2 * segments + 4),
        slots_(static_cast<int>(scenario.training.in_flight)) {
    for (const PassOrder& order : orders_) {
      first_.push_back(moments_);
      moments_ += steps_ * std::ssize(order.passes);
    }
  }

  std::int64_t moments() const { return moments_; }

  BitSet alive(const LivingTensor& tensor) const {
    BitSet alive(moments_);
    for (std::size_t i = 0; i < orders_.size(); ++i) {
      for (const Life& life : tensor.lives) add(alive, i, tensor.slot, life);
    }
    return alive;
  }

  std::string place(std::int64_t moment) const {
    std::size_t order = orders_.size() - 1;
    while (first_[order] > moment) --order;
    const PassOrder& in = orders_[order];
    const std::int64_t pass = (moment - first_[order]) / steps_;
    const std::int64_t step = (moment - first_[order]) % steps_ - 1;
    const Pass& running = at(in.passes, pass);
    return std::string(in.evaluation ? "an evaluation" : "a training step") + " of " +
           std::to_string(microbatches(in)) + " microbatches, " +
           (running.forward ? "forward" : "backward") + " pass of microbatch " +
           std::to_string(running.microbatch) + ", " + name_of(step);
  }

 private:
  static std::int64_t microbatches(const PassOrder& order) {
    return std::count_if(order.passes.begin(), order.passes.end(),
                         [](const Pass& pass) { return pass.forward; });
  }
  std::string name_of(std::int64_t step) const {
    const std::int64_t segments = steps_ / 2 - 2;
    const std::int64_t segment = step <= segments ? step : 2 * segments + 1 - step;
    if (segment == -1) return "the embedding";
    return segment == segments ? "the head" : "segment " + std::to_string(segment);
  }

  // The place of a microbatch's pass in an order, -1 if there is none.
  static std::int64_t pass_of(const PassOrder& order, bool forward, int microbatch) {
    const auto found =
        std::find(order.passes.begin(), order.passes.end(), Pass{forward, microbatch});
    return found == order.passes.end() ? -1 : found - order.passes.begin();
  }
  bool is_forward(int step) const { return step < steps_ / 2 - 1; }
  std::int64_t moment(std::size_t order, std::int64_t pass, int step) const {
    return first_[order] + pass * steps_ + step + 1;
  }

  void add(BitSet& alive, std::size_t order, int slot, const Life& life) const {
    const PassOrder& in = orders_[order];
    if (in.evaluation && !life.in_evaluations()) return;
    const int end = in.evaluation ? life.forward_end : life.end;
    for (int m = 0; m < microbatches(in); ++m) {
      if (slot != LivingTensor::kAllSlots && m % slots_ != slot) continue;
      const std::int64_t from = pass_of(in, is_forward(life.begin), m);
      const std::int64_t to = pass_of(in, is_forward(end), m);
      if (from < 0 || to < 0) continue;
      for (std::int64_t t = moment(order, from, life.begin); t <= moment(order, to, end); ++t)
        alive.add(t);
    }
  }

  std::vector<PassOrder> orders_;
  std::vector<std::int64_t> first_;  // Moment of each order.
  std::int64_t moments_ = 0;
  const int steps_, slots_;
};

}  // namespace

std::vector<PassOrder> pass_orders(const Scenario& scenario) {
  const int in_flight = static_cast<int>(scenario.training.in_flight);
  const int depth = faulty("shared-memory-of-one-in-flight", in_flight, 1);
  std::vector<PassOrder> orders;
  for (const int count : microbatch_counts(scenario)) {
    orders.push_back({.passes = one_forward_one_backward(count, depth)});
    PassOrder evaluation{.passes = {}, .evaluation = true};
    for (int m = 0; m < std::min(count, in_flight); ++m) evaluation.passes.push_back({true, m});
    if (scenario.training.eval_every > 0) orders.push_back(std::move(evaluation));
  }
  return orders;
}

const PlannedTensor* MemoryPlan::find(const std::string& name, int slot) const {
  for (const int owner : {slot, LivingTensor::kAllSlots}) {
    const auto found = places.find({owner, name});
    if (found != places.end()) return &tensors[found->second];
  }
  return nullptr;
}

namespace {

// The tensors of a plan as blocks: one for each, or, of a plan with very many, one for all tensors
// of a slot with the same lives, since placing takes time with the square of their number.
class Blocks {
 public:
  Blocks(const std::vector<PlannedTensor>& tensors, const Calendar& calendar) {
    constexpr std::size_t kMany = 2000;
    const bool joins = tensors.size() > kMany;
    std::map<std::pair<int, std::vector<Life>>, std::size_t> alike;
    for (const PlannedTensor& one : tensors) {
      const LivingTensor& tensor = one.tensor;
      std::size_t block = list_.size();
      if (joins) block = alike.try_emplace({tensor.slot, tensor.lives}, block).first->second;
      if (block == list_.size()) list_.push_back({0, calendar.alive(tensor)});
      places_.push_back({block, list_[block].bytes});
      list_[block].bytes += one.bytes;
    }
  }
  const std::vector<MemoryBlock>& list() const { return list_; }
  std::int64_t offset(std::size_t tensor, const Placement& placement) const {
    return placement.offsets[places_[tensor].block] + places_[tensor].offset;
  }
  bool is_alive(std::size_t tensor, std::int64_t moment) const {
    return list_[places_[tensor].block].alive.has(moment);
  }

 private:
  struct Place {
    std::size_t block;
    std::int64_t offset;
  };
  std::vector<MemoryBlock> list_;
  std::vector<Place> places_;  // Each tensor has one.
};

}  // namespace

MemoryPlan plan_memory(const Scenario& scenario) {
  const Calendar calendar(scenario, static_cast<int>(segments(scenario).size()));
  MemoryPlan plan;
  std::set<std::string> common;
  for (LivingTensor& tensor : living_tensors(scenario)) {
    const std::int64_t bytes = rounded_up(tensor.bytes);
    plan.tensor_bytes += bytes;
    const bool is_first = tensor.common.empty() || common.insert(tensor.common).second;
    plan.unshared += is_first ? bytes : 0;
    plan.places.try_emplace({tensor.slot, tensor.name}, plan.tensors.size());
    plan.tensors.push_back({.tensor = std::move(tensor), .bytes = bytes});
  }
  const Blocks blocks(plan.tensors, calendar);
  const Peak peak = peak_of(blocks.list(), calendar.moments());
  const Placement placement = place(blocks.list(), peak);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    plan.tensors[i].offset = blocks.offset(i, placement);
    if (blocks.is_alive(i, peak.moment)) plan.at_peak.push_back(i);
  }
  plan.bytes = placement.bytes;
  plan.first_fit_bytes = first_fit(blocks.list()).bytes;
  plan.peak_bytes = peak.bytes;
  plan.peak_place = calendar.place(peak.moment);
  return plan;
}

}  // namespace lockstep
