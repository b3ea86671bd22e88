// The plan of shared memory against every order of passes that a scenario has, walked step by step,
// and against the addresses that a run accesses.
#include "engine/memory/memory_plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "engine/plan/regions.h"
#include "harness/generate/generator.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

int scenarios_to_draw(int otherwise) {
  const char* count = std::getenv("LOCKSTEP_PLANS");
  return count == nullptr ? otherwise : std::atoi(count);
}

Scenario random_scenario_with_graphs(std::uint64_t seed) {
  Choices choices(seed);
  Scenario s = generate_scenario(choices);
  if (s.parallel.chunks > 1) {  // Not built beside shared memory.
    s.parallel.chunks = s.parallel.group = 1;
    s.parallel.schedule = PipelineSchedule::gpipe;
    s.training.in_flight = scheduled_depth(s);
  }
  s.cuda_graph.shared_memory = true;
  return s;
}

bool is_drawn(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::partial; }

std::set<std::int64_t> counts_of(const Scenario& s) {
  std::set<std::int64_t> counts{s.training.microbatches};
  for (const auto& change : s.training.change_microbatches_at) counts.insert(change.microbatches);
  return counts;
}

// Walks an order of passes. Each step of a pass starts the lives that begin there, looks for two
// live tensors with a common byte, and ends the lives that end there.
class Walk {
 public:
  explicit Walk(const Scenario& scenario)
      : scenario_(scenario),
        plan_(plan_memory(scenario)),
        head_(static_cast<int>(segments(scenario).size())) {}

  const MemoryPlan& plan() const { return plan_; }

  // F F F B F B B B for the microbatches [first, end), written down here a second time.
  std::string train(int first, int end) {
    const int depth = static_cast<int>(scenario_.training.in_flight);
    alive_.clear();
    std::string error;
    int backward = first;
    for (int forward = first; forward < end; ++forward) {
      if (forward - backward == depth && error.empty()) error = pass(backward++, false);
      if (error.empty()) error = pass(forward, true);
    }
    while (backward < end && error.empty()) error = pass(backward++, false);
    return error;
  }

  std::string evaluate(int count) {
    for (int m = 0; m < count; ++m) {
      alive_.clear();
      const std::string error = pass(m, true);
      if (!error.empty()) return error;
    }
    return "";
  }

 private:
  using Key = std::pair<std::size_t, std::size_t>;  // Tensor and life.

  std::string pass(int microbatch, bool forward) {
    const int slot = microbatch % static_cast<int>(scenario_.training.in_flight);
    for (int step = forward ? -1 : head_ + 1; step <= (forward ? head_ : 2 * head_ + 2); ++step) {
      begin(step, slot);
      const std::string error = overlap();
      if (!error.empty())
        return error + " in step " + std::to_string(step) + " of microbatch " +
               std::to_string(microbatch);
      end(step, slot);
    }
    return "";
  }
  bool is_of(const LivingTensor& tensor, int slot) const {
    return tensor.slot == slot || tensor.slot == LivingTensor::kAllSlots;
  }
  void begin(int step, int slot) {
    each(slot, [&](Key key, const Life& life) {
      if (life.begin == step) alive_.insert(key);
    });
  }
  void end(int step, int slot) {
    each(slot, [&](Key key, const Life& life) {
      // Buffers of offloading live from the first pass to the last.
      if (life.end == step && !plan_.tensors[key.first].tensor.is_buffer) alive_.erase(key);
    });
  }
  template <class Visit>
  void each(int slot, Visit visit) const {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const LivingTensor& tensor = plan_.tensors[i].tensor;
      if (!is_of(tensor, slot)) continue;
      for (std::size_t j = 0; j < tensor.lives.size(); ++j) visit({i, j}, tensor.lives[j]);
    }
  }
  std::string overlap() const {
    std::map<std::int64_t, std::size_t> by_offset;  // Live tensors alone.
    std::set<std::size_t> tensors;
    for (const Key& key : alive_) tensors.insert(key.first);
    std::int64_t sum = 0;
    for (const std::size_t i : tensors) {
      sum += plan_.tensors[i].bytes;
      const auto [other, is_new] = by_offset.try_emplace(plan_.tensors[i].offset, i);
      if (!is_new) return name(i) + " lies on " + name(other->second);
    }
    std::int64_t free = 0;
    std::size_t last = 0;
    for (const auto& [offset, i] : by_offset) {
      if (offset < free) return name(i) + " lies on " + name(last);
      free = offset + plan_.tensors[i].bytes;
      last = i;
    }
    if (sum > plan_.peak_bytes) return "more is alive than the plan says";
    return free > plan_.bytes ? "a tensor lies outside" : "";
  }
  std::string name(std::size_t i) const {
    const LivingTensor& tensor = plan_.tensors[i].tensor;
    return tensor.name + " of slot " + std::to_string(tensor.slot);
  }

  const Scenario& scenario_;
  MemoryPlan plan_;
  int head_;
  std::set<Key> alive_;
};

// Whole steps of every count, both parts of a step that is cut anywhere, and evaluations: more
// orders than the plan looks at.
TEST(MemoryPlan, LetsNoTwoTensorsShareBytesThatAreAliveTogether) {
  int seen = 0;
  for (int seed = 0; seed < 400; ++seed) {
    const Scenario s = random_scenario_with_graphs(seed);
    if (!is_drawn(s) || !check_legality(s).empty()) continue;
    ++seen;
    Walk walk(s);
    for (const std::int64_t count : counts_of(s)) {
      const int all = static_cast<int>(count);
      EXPECT_EQ(walk.train(0, all), "") << "seed " << seed;
      for (const int cut : {1, 2, all / 2, all - 1}) {
        if (cut <= 0 || cut >= all) continue;
        EXPECT_EQ(walk.train(0, cut), "") << "seed " << seed << ", cut at " << cut;
        EXPECT_EQ(walk.train(cut, all), "") << "seed " << seed << ", cut at " << cut;
      }
      EXPECT_EQ(walk.evaluate(all), "") << "seed " << seed;
    }
  }
  EXPECT_GT(seen, 100);
}

TEST(MemoryPlan, OfVeryManyTensorsIsMadeInTime) {
  Scenario s;
  for (int i = 0; i < 12; ++i) s.model.pattern += "M*-E";
  s.training.microbatches = 9;
  s.training.in_flight = 8;
  s.cuda_graph.shared_memory = true;
  Walk walk(s);
  EXPECT_GT(walk.plan().tensors.size(), 4'000u);
  EXPECT_EQ(walk.train(0, 9), "");
  EXPECT_LE(20 * walk.plan().bytes, 21 * walk.plan().peak_bytes);
}

// An evaluation has the forward passes of a step, one at a time, and what is alive together in it
// is alive together there.
TEST(MemoryPlan, DoesNotDependOnEvaluations) {
  for (int seed = 0; seed < 100; ++seed) {
    Scenario s = random_scenario_with_graphs(seed);
    if (!is_drawn(s)) continue;
    s.training.eval_every = 1;
    const MemoryPlan with = plan_memory(s);
    s.training.eval_every = 0;
    const MemoryPlan without = plan_memory(s);
    ASSERT_EQ(with.tensors.size(), without.tensors.size());
    EXPECT_EQ(with.peak_bytes, without.peak_bytes) << seed;
  }
}

// Counts, for LOCKSTEP_PLANS scenarios, how far the memory is above the largest sum of live bytes.
TEST(MemoryPlan, TakesAtMostATwentiethMoreThanIsAlive) {
  int seen = 0, above = 0, first_fit_above = 0, larger = 0;
  double saved = 0, worst = 0, first_fit_worst = 0;
  const int count = scenarios_to_draw(300);
  for (int seed = 0; seed < count; ++seed) {
    const Scenario s = random_scenario_with_graphs(seed);
    if (!is_drawn(s) || !check_legality(s).empty()) continue;
    ++seen;
    const MemoryPlan plan = plan_memory(s);
    const double ratio = static_cast<double>(plan.bytes) / static_cast<double>(plan.peak_bytes);
    const double plain =
        static_cast<double>(plan.first_fit_bytes) / static_cast<double>(plan.peak_bytes);
    above += ratio > 1.05;
    first_fit_above += plain > 1.05;
    worst = std::max(worst, ratio);
    first_fit_worst = std::max(first_fit_worst, plain);
    EXPECT_GT(plan.tensor_bytes, plan.bytes) << seed;
    larger += plan.saved() <= 0;
    saved += static_cast<double>(plan.saved()) / static_cast<double>(plan.unshared);
    EXPECT_LE(ratio, 1.05) << "seed " << seed;
  }
  std::printf(
      "%d scenarios: %d above 1.05, worst %.4f; first fit by size alone: %d, worst %.4f\n"
      "saved on average %.1f %%, in %d nothing\n",
      seen, above, worst, first_fit_above, first_fit_worst, 100 * saved / seen, larger);
  EXPECT_GT(seen, count / 4);
}

TEST(MemoryPlan, LetsForwardOnlyTensorsOfAllSlotsShare) {
  Scenario s;
  s.model.pattern = "*-*-";
  s.training.microbatches = s.training.in_flight = 3;
  s.cuda_graph.shared_memory = true;
  const MemoryPlan plan = plan_memory(s);
  std::set<std::int64_t> offsets;
  std::int64_t tensors = 0;
  for (const PlannedTensor& one : plan.tensors) {
    if (!one.tensor.name.ends_with(".proj")) continue;
    offsets.insert(one.offset);
    ++tensors;
  }
  EXPECT_EQ(tensors, 12);
  EXPECT_LT(offsets.size(), 12u);
}

// ---- A run --------------------------------------------------------------------------------------

// Attributes every access of an eager training step to a step of the time line, and finds the
// tensor that the plan has there. Every region is whole layers.
class Accesses : public Observer {
 public:
  explicit Accesses(const Scenario& scenario)
      : scenario_(scenario),
        plan_(plan_memory(scenario)),
        head_(static_cast<int>(segments(scenario).size())),
        seen_(plan_.tensors.size()) {
    int number = 0;
    for (const Segment& segment : segments(scenario)) {
      for (const Part& part : segment.parts) segment_of_[part.layer] = number;
      ++number;
    }
  }

  void on_call(const IssuedCall& issued) override {
    if (const auto* allocated = issued.as<AllocateCall>()) {
      const bool is_it = allocated->bytes == static_cast<std::size_t>(plan_.bytes);
      if (is_it && base_ == nullptr) base_ = static_cast<const std::byte*>(allocated->memory);
    }
    const std::string part = issued.place.part;
    if (issued.place.step != 0 || part == "padding" || part == "observed") return;
    if (const auto* submitted = issued.as<SubmitCall>()) {
      for (const OperandBytes& operand : submitted->op.operands())
        note(issued.place, operand.base,
             (operand.rows - 1) * operand.pitch_bytes + operand.row_bytes);
    }
    if (const auto* copied = issued.as<CopyCall>()) {
      if (part == "offload" || part == "reload") return;
      note(issued.place, copied->from, static_cast<std::int64_t>(copied->bytes));
    }
  }

  // Tensors whose first or last access is not where the plan has it.
  std::string inexact() const {
    std::string list;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const LivingTensor& tensor = plan_.tensors[i].tensor;
      if (tensor.is_buffer) continue;
      int begin = 2 * head_ + 3, end = -2;
      for (const Life& life : tensor.lives) {
        begin = std::min(begin, life.begin);
        end = std::max(end, life.end);
      }
      if (seen_[i].empty() || *seen_[i].begin() != begin || *seen_[i].rbegin() != end)
        list += tensor.name + " [" + std::to_string(begin) + ", " + std::to_string(end) + "]; ";
    }
    return list;
  }
  const std::string& outside() const { return outside_; }
  bool found() const { return base_ != nullptr; }

 private:
  int step_of(const StepLocation& place) const {
    const std::string part = place.part;
    const bool embedding = part == "embedding" || part == "metadata";
    const int segment = place.layer >= 0 ? segment_of_.at(place.layer) : (embedding ? -1 : head_);
    return place.backward ? 2 * head_ + 1 - segment : segment;
  }
  void note(const StepLocation& place, const void* memory, std::int64_t bytes) {
    if (base_ == nullptr || memory == nullptr) return;
    const std::int64_t offset = static_cast<const std::byte*>(memory) - base_;
    if (offset < 0 || offset >= plan_.bytes) return;
    const int slot = place.microbatch % static_cast<int>(scenario_.training.in_flight);
    const int step = step_of(place);
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& one = plan_.tensors[i];
      if (one.tensor.slot != slot && one.tensor.slot != LivingTensor::kAllSlots) continue;
      if (offset < one.offset || offset + bytes > one.offset + one.bytes) continue;
      for (const Life& life : one.tensor.lives) {
        if (step < life.begin || step > life.end) continue;
        seen_[i].insert(step);
        return;
      }
    }
    if (outside_.empty())
      outside_ = "step " + std::to_string(step) + ", " + place.part + ", bytes " +
                 std::to_string(offset) + " to " + std::to_string(offset + bytes);
  }

  const Scenario& scenario_;
  MemoryPlan plan_;
  int head_;
  std::map<int, int> segment_of_;
  std::vector<std::set<int>> seen_;
  const std::byte* base_ = nullptr;
  std::string outside_;
};

TEST(MemoryPlan, HasTheLivesThatARunHas) {
  for (const char* pattern : {"*-M*-", "M-*", "E*E", "*E-"}) {
    for (const bool offloads : {false, true}) {
      Scenario s;
      s.model.pattern = pattern;
      s.model.dropout = {100'000};
      s.model.moe.shared_hidden = 16;
      s.model.moe.aux_loss = {10'000};
      s.model.moe.z_loss = {1'000};
      s.model.moe.capacity_factor = Ratio{1'000'000};
      s.training.microbatches = 3;
      s.training.in_flight = 2;
      s.cuda_graph.shared_memory = true;
      if (offloads) s.offload.modules = {OffloadModule::qkv_linear, OffloadModule::core_attn};
      ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
      Accesses accesses(s);
      run(s, *open_data(s), {}, &accesses);
      EXPECT_TRUE(accesses.found());
      EXPECT_EQ(accesses.outside(), "") << pattern;
      EXPECT_EQ(accesses.inexact(), "") << pattern;
    }
  }
}

TEST(MemoryPlan, ChangesNoBitOfARun) {
  using Change = void (*)(Scenario&);
  const std::vector<Change> changes{
      [](Scenario&) {},
      [](Scenario& s) { s.training.in_flight = 3; },
      [](Scenario& s) { s.training.in_flight = 1; },
      [](Scenario& s) { s.cuda_graph.max_packed_seqs = {3}; },
      [](Scenario& s) {
        s.cuda_graph.max_packed_seqs = {2, 4};
        s.cuda_graph.graph_memory_limit = 1;
      },
      [](Scenario& s) { s.cuda_graph.evaluation = GraphEvaluation::replay; },
      [](Scenario& s) { s.cuda_graph.capture_passes = 2; },
      [](Scenario& s) {
        s.model.recompute = {Recompute::mlp, Recompute::layernorm};
      },
      [](Scenario& s) { s.cuda_graph.modules = {GraphModule::attn}; },
      [](Scenario& s) { s.numerics = {Numerics::bf16}; },
      [](Scenario& s) {
        s.model.pattern = "E*-E";
        s.model.moe.capacity_factor.reset();
        s.model.moe.pad_to_capacity = false;
        s.cuda_graph.modules = {GraphModule::moe_router};
        s.model.moe.host_sync = true;
      }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Scenario s;
    s.model.pattern = "M*-*-";
    s.model.dropout = {100'000};
    s.training.steps = 4;
    s.training.microbatches = 4;
    s.training.eval_every = 2;
    s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}, {9, 9}},
                        {{64}, {3, 4, 20, 15, 9}, {0, 31}, {2, 60}}};
    changes[i](s);
    ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
    const auto data = open_data(s);
    const Outcome want = run(s, *data);
    s.cuda_graph.shared_memory = true;
    const Outcome got = run(s, *data);
    EXPECT_EQ(difference(want, got), "") << "change " << i;
    EXPECT_GT(got.counters.at(Counter::bytes_shared), 0) << i;
    EXPECT_EQ(want.counters.at(Counter::bytes_shared), 0) << i;
  }
}

}  // namespace
}  // namespace lockstep::test
