#include "engine/memory/memory_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "engine/memory/time_line.h"
#include "engine/plan/chunks.h"
#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

std::int64_t rounded_up(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = MemoryPlan::kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A step of several chunks counts as it is: each chunk has another number of slots, and the longer
// a step is, the more of their pairs meet.
std::set<int> microbatch_counts(const Scenario& scenario, const std::vector<Chunk>& chunks) {
  const Scenario::Training& training = scenario.training;
  const std::set<std::int64_t> first{training.microbatches};
  std::set<std::int64_t> all = first;
  for (const Scenario::MicrobatchChange& change : training.change_microbatches_at)
    all.insert(change.microbatches);
  all = faulty("shared-memory-of-the-first-count", all, first);
  std::set<int> counts;
  for (const std::int64_t count : all) {
    const std::int64_t longest = chunks.size() > 1 ? count : 2 * chunks.front().slots - 1;
    counts.insert(static_cast<int>(std::min<std::int64_t>(count, longest)));
  }
  return counts;
}

// All orders one after the other, each pass with the steps of both passes of its chunk: that makes
// the moments of a forward and of a backward pass alike to count.
class Calendar {
 public:
  Calendar(const Scenario& scenario, int stage)
      : chunks_(chunks_of(scenario, segments(scenario), stage)), line_(chunks_) {
    for (PassOrder& order : pass_orders(scenario, stage)) days_.push_back(day_of(std::move(order)));
  }

  std::int64_t moments() const { return moments_; }

  BitSet alive(const LivingTensor& tensor) const {
    BitSet alive(moments_);
    for (std::int64_t t = 0; tensor.is_always_alive && t < moments_; ++t) alive.add(t);
    for (const Day& day : days_) {
      for (const Life& life : tensor.lives) add(alive, day, tensor, life);
    }
    return alive;
  }

  std::string place(std::int64_t moment) const {
    std::size_t number = days_.size() - 1;
    while (days_[number].begins.front() > moment) --number;
    const Day& day = days_[number];
    const auto behind = std::upper_bound(day.begins.begin(), day.begins.end(), moment);
    const Pass& running = at(day.order.passes, behind - day.begins.begin() - 1);
    const std::string chunk =
        chunks_.size() > 1 ? " through chunk " + std::to_string(running.chunk) : "";
    return std::string(day.order.evaluation ? "an evaluation" : "a training step") + " of " +
           std::to_string(day.microbatches) + " microbatches, " +
           (running.forward ? "forward" : "backward") + " pass of microbatch " +
           std::to_string(running.microbatch) + chunk + ", " +
           name_of(at(chunks_, running.chunk), static_cast<int>(moment - behind[-1]) - 1);
  }

 private:
  // An order and the moments at which its passes begin.
  struct Day {
    PassOrder order;
    int microbatches = 0;
    std::vector<std::int64_t> begins = {};
    // By kind, chunk and microbatch.
    std::map<std::tuple<bool, int, int>, std::int64_t> begin_of = {};
  };

  Day day_of(PassOrder order) {
    Day day{.order = std::move(order)};
    for (const Pass& pass : day.order.passes) {
      day.microbatches = std::max(day.microbatches, pass.microbatch + 1);
      day.begins.push_back(moments_);
      day.begin_of.try_emplace({pass.forward, pass.chunk, pass.microbatch}, moments_);
      moments_ += 2 * line_.segments(pass.chunk) + 4;
    }
    return day;
  }
  // `own`: on the chunk's own time line.
  std::string name_of(const Chunk& chunk, int own) const {
    const int head = line_.segments(chunk.number);
    const int segment = own <= head ? own : 2 * head + 1 - own;
    if (segment == -1) return chunk.is_first ? "the embedding" : "its input";
    if (segment == head) return chunk.is_last ? "the head" : "its output";
    return "segment " + std::to_string(chunk.first_segment + segment);
  }

  // When a microbatch is in a step, -1 if it never is.
  std::int64_t moment(const Day& day, int microbatch, int step) const {
    const TimeLine::Place place = line_.place(step);
    const auto found = day.begin_of.find({line_.is_forward(step), place.chunk, microbatch});
    return found == day.begin_of.end() ? -1 : found->second + place.own + 1;
  }

  void add(BitSet& alive, const Day& day, const LivingTensor& tensor, const Life& life) const {
    const Chunk& chunk = at(chunks_, tensor.chunk);
    if (day.order.evaluation && !life.in_evaluations()) return;
    const int end = day.order.evaluation ? life.forward_end : life.end;
    for (int m = 0; m < day.microbatches; ++m) {
      if (tensor.slot != LivingTensor::kAllSlots && tensor.slot != chunk.slot_of(m)) continue;
      const std::int64_t from = moment(day, m, life.begin), to = moment(day, m, end);
      if (from < 0) continue;
      for (std::int64_t t = from; t <= to; ++t) alive.add(t);
    }
  }

  const std::vector<Chunk> chunks_;
  const TimeLine line_;
  std::int64_t moments_ = 0;
  std::vector<Day> days_;
};

}  // namespace

std::vector<PassOrder> pass_orders(const Scenario& scenario, int stage) {
  const std::vector<Chunk> chunks = chunks_of(scenario, segments(scenario), stage);
  const int of_stage = faulty("shared-memory-in-the-order-of-the-last-stage", stage,
                              static_cast<int>(scenario.parallel.pipeline) - 1);
  std::vector<PassOrder> orders;
  for (const int count : microbatch_counts(scenario, chunks)) {
    const int at_once = faulty("shared-memory-of-one-in-flight", count, 1);
    orders.push_back({.passes = passes_of_parts(scenario, 0, count, at_once, of_stage)});
    if (scenario.training.eval_every == 0) continue;
    PassOrder evaluation{.passes = {}, .evaluation = true};
    const int seen = chunks.size() > 1 ? count : std::min(count, chunks.front().slots);
    for (int m = 0; m < seen; ++m) {
      for (const Chunk& chunk : chunks) evaluation.passes.push_back({true, m, chunk.number});
    }
    orders.push_back(std::move(evaluation));
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
    std::map<std::tuple<int, int, std::vector<Life>>, std::size_t> alike;
    for (const PlannedTensor& one : tensors) {
      const LivingTensor& tensor = one.tensor;
      std::size_t block = list_.size();
      if (joins) {
        const auto key = std::tuple(tensor.chunk, tensor.slot, tensor.lives);
        block = alike.try_emplace(key, block).first->second;
      }
      if (block == list_.size()) {
        list_.push_back({0, calendar.alive(tensor)});
        chunks_.push_back(tensor.chunk);
      }
      places_.push_back({block, list_[block].bytes});
      list_[block].bytes += one.bytes;
    }
  }
  const std::vector<MemoryBlock>& list() const { return list_; }
  std::vector<MemoryBlock> of_chunk(int chunk) const {
    std::vector<MemoryBlock> own;
    for (std::size_t block = 0; block < list_.size(); ++block) {
      if (chunks_[block] == chunk) own.push_back(list_[block]);
    }
    return own;
  }
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
  std::vector<int> chunks_;    // Each block has one.
  std::vector<Place> places_;  // Each tensor has one.
};

}  // namespace

MemoryPlan plan_memory(const Scenario& scenario, int stage) {
  const Calendar calendar(scenario, stage);
  MemoryPlan plan;
  std::set<std::string> common;
  for (LivingTensor& tensor : living_tensors(scenario, stage)) {
    const std::int64_t bytes = rounded_up(tensor.bytes);
    plan.tensor_bytes += bytes;
    const bool is_first = tensor.common.empty() || common.insert(tensor.common).second;
    plan.unshared += is_first ? bytes : 0;
    plan.places.try_emplace({tensor.slot, tensor.name}, plan.tensors.size());
    plan.tensors.push_back({.tensor = std::move(tensor), .bytes = bytes});
  }
  const Blocks blocks(plan.tensors, calendar);
  const Peak peak = peak_of(blocks.list(), calendar.moments());
  // Slots of several chunks meet in pairs at different times, and with one chunk all at once.
  plan.least_bytes =
      scenario.parallel.chunks > 1 ? bytes_of_pairs(blocks.list(), peak) : peak.bytes;
  const Placement placement = place(blocks.list(), plan.least_bytes);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    plan.tensors[i].offset = blocks.offset(i, placement);
    if (blocks.is_alive(i, peak.moment)) plan.at_peak.push_back(i);
  }
  plan.bytes = placement.bytes;
  for (int chunk = 0; chunk < scenario.parallel.chunks; ++chunk)
    plan.apart_bytes += peak_of(blocks.of_chunk(chunk), calendar.moments()).bytes;
  plan.first_fit_bytes = first_fit(blocks.list()).bytes;
  plan.peak_bytes = peak.bytes;
  plan.peak_place = calendar.place(peak.moment);
  return plan;
}

}  // namespace lockstep
