#include "engine/offload/forecast.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "engine/offload/by_step.h"
#include "engine/offload/early_copies.h"
#include "engine/offload/time_model.h"
#include "engine/plan/schedule.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// The copies of one chunk.
struct ChunkCopies {
  explicit ChunkCopies(const OffloadPlan& of, std::size_t first)
      : plan(of),
        first_group(first),
        h2d_complete(of.groups.size()),
        last_read(of.groups.size()),
        buffer_free(static_cast<std::size_t>(of.sets) * of.buffers.size()),
        written_at(of.segments),
        last_read_at(of.segments),
        d2h_at(of.segments),
        h2d_at(of.last_step()),
        needed_at(of.last_step()) {
    for (std::size_t g = 0; g < of.groups.size(); ++g) {
      if (!of.groups[g].is_resident) add(g);
    }
    // The group that is needed first is copied first.
    const auto earlier = [&](std::size_t a, std::size_t b) {
      return group(a).h2d.end < group(b).h2d.end;
    };
    for (std::vector<std::size_t>& groups : h2d_at)
      std::stable_sort(groups.begin(), groups.end(), earlier);
  }
  void add(std::size_t g) {
    const OffloadGroup& moving = group(g);
    for (const OffloadTensor& tensor : moving.tensors)
      written_at[tensor.written].push_back(&tensor);
    last_read_at[moving.last_read].push_back(g);
    d2h_at[moving.d2h.begin].push_back(g);
    h2d_at[moving.h2d.begin].push_back(g);
    needed_at[moving.h2d.end].push_back(g);
  }
  const OffloadGroup& group(std::size_t g) const { return plan.groups[g]; }
  double& free_from(const OffloadTensor& tensor, int slot) {
    return buffer_free[plan.buffer_of(tensor, slot)];
  }

  const OffloadPlan& plan;
  const std::size_t first_group;  // Its number among the groups of all chunks.
  // Per group, for the latest microbatch that reached it.
  std::vector<double> h2d_complete, last_read;
  std::vector<double> buffer_free;  // When the last d2h copy out of each buffer is complete.
  EarlyCopies early;
  ByStep<const OffloadTensor*> written_at;
  ByStep<std::size_t> last_read_at, d2h_at, h2d_at, needed_at;  // Indices of groups.
};

// Runs the passes of a training step one after the other, as the offloaders do, and advances the
// time of each stream.
class Timeline {
 public:
  explicit Timeline(const std::vector<OffloadPlan>& plans) : plans_(plans) {
    std::size_t groups = 0;
    chunks_.reserve(plans.size());
    for (const OffloadPlan& plan : plans) {
      chunks_.emplace_back(plan, groups);
      groups += plan.groups.size();
    }
    result_.awaited.resize(groups);
  }

  OffloadForecast run(const std::vector<Pass>& passes) {
    for (std::size_t i = 0; i < passes.size(); ++i) {
      ChunkCopies& chunk = at(chunks_, passes[i].chunk);
      const int slot = passes[i].microbatch % static_cast<int>(chunk.plan.slots);
      next_ = i + 1 < passes.size() ? &at(chunks_, passes[i + 1].chunk) : nullptr;
      next_slot_ = next_ != nullptr ? next_->plan.slot_to_come(passes, i) : std::nullopt;
      passes[i].forward ? forward(chunk, slot) : backward(chunk, slot);
    }
    for (const OffloadPlan& plan : plans_) {
      const auto microbatches = static_cast<double>(plan.microbatches);
      for (int i = 0; i <= plan.segments; ++i) {
        result_.compute +=
            microbatches * (at(plan.seconds.forward, i) + at(plan.seconds.backward, i));
      }
    }
    result_.stalled = std::max(0.0, compute_ - result_.compute);
    result_.slowed = kSlowedByCopies * (result_.d2h + result_.h2d) / 2;
    return result_;
  }

 private:
  // A segment waits for the d2h copies out of the buffers that it writes.
  void forward(ChunkCopies& chunk, int slot) {
    const OffloadPlan& plan = chunk.plan;
    for (int step = -1; step <= plan.segments; ++step) {
      if (step >= 0) start_early(plan.steps_behind(step));
      for (const OffloadTensor* tensor : chunk.written_at[step])
        compute_ = std::max(compute_, chunk.free_from(*tensor, slot));
      const double begin = compute_;
      if (step >= 0) compute_ += at(plan.seconds.forward, step);
      for (const std::size_t g : chunk.last_read_at[step]) chunk.last_read[g] = compute_;
      for (const std::size_t g : chunk.d2h_at[step])
        start_d2h(chunk, g, slot, std::max(begin, chunk.last_read[g]));
    }
  }
  void start_d2h(ChunkCopies& chunk, std::size_t g, int slot, double ready) {
    const OffloadGroup& group = chunk.group(g);
    const double begin = std::max(d2h_, ready);
    const double seconds =
        copy_seconds(group.bytes(), begin < h2d_ ? Link::both_ways : Link::alone);
    d2h_ = begin + seconds;
    result_.d2h += seconds;
    for (const OffloadTensor& tensor : group.tensors) chunk.free_from(tensor, slot) = d2h_;
    const std::optional<std::int64_t> limit = chunk.plan.max_inflight;
    if (!limit) return;
    in_flight_.push_back(d2h_);
    for (; std::ssize(in_flight_) > *limit; in_flight_.pop_front()) {
      compute_ = std::max(compute_, in_flight_.front());
    }
  }

  // The link carries both ways at once; an h2d copy follows the last d2h copy out of its buffer.
  void start_h2d(ChunkCopies& chunk, int step, int slot) {
    for (const std::size_t g : chunk.h2d_at[step]) {
      const OffloadGroup& group = chunk.group(g);
      h2d_ = std::max(h2d_, compute_);
      for (const OffloadTensor& tensor : group.tensors)
        h2d_ = std::max(h2d_, chunk.free_from(tensor, slot));
      const double seconds =
          copy_seconds(group.bytes(), h2d_ < d2h_ ? Link::both_ways : Link::alone);
      chunk.h2d_complete[g] = h2d_ += seconds;
      result_.h2d += seconds;
    }
  }
  // Starts h2d copies of the backward pass that comes next, if they may begin `behind` steps before
  // the end of this one.
  void start_early(std::optional<int> behind) {
    if (!next_slot_ || !behind) return;
    for (const int step : next_->early.due(next_->plan, *next_slot_, *behind))
      start_h2d(*next_, step, *next_slot_);
  }
  // A backward pass starts those of its h2d copies that the pass before has not begun.
  void backward(ChunkCopies& chunk, int slot) {
    const OffloadPlan& plan = chunk.plan;
    for (const int step : chunk.early.missed(plan, slot)) start_h2d(chunk, step, slot);
    for (int step = plan.segments + 1; step <= plan.last_step(); ++step) {
      start_h2d(chunk, step, slot);
      start_early(plan.steps_behind(step));
      for (const std::size_t g : chunk.needed_at[step]) {
        result_.awaited[chunk.first_group + g] += std::max(0.0, chunk.h2d_complete[g] - compute_);
        compute_ = std::max(compute_, chunk.h2d_complete[g]);
      }
      compute_ += at(plan.seconds.backward, plan.segment_of(step));
    }
  }

  const std::vector<OffloadPlan>& plans_;
  std::vector<ChunkCopies> chunks_;
  OffloadForecast result_;
  // The chunk and slot of the backward pass behind the pass at hand, if its h2d copies may begin in
  // that.
  ChunkCopies* next_ = nullptr;
  std::optional<int> next_slot_;
  double compute_ = 0, d2h_ = 0, h2d_ = 0;  // When each stream has run what was submitted so far.
  std::deque<double> in_flight_;  // When the d2h copies complete that compute has not waited for.
};

}  // namespace

double OffloadForecast::hidden() const {
  return d2h == 0 ? 1 : std::max(0.0, 1 - stalled / (d2h + h2d));
}

bool OffloadForecast::fits() const {
  constexpr double kHardly = 0.005;
  return stalled <= kHardly * compute;
}

OffloadForecast forecast(const std::vector<OffloadPlan>& plans, const std::vector<Pass>& passes) {
  return Timeline(plans).run(passes);
}

OffloadForecast forecast(const OffloadPlan& plan) {
  return forecast(std::vector{plan}, one_forward_one_backward(static_cast<int>(plan.microbatches),
                                                              static_cast<int>(plan.slots)));
}

}  // namespace lockstep
