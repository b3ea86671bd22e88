// The plan of shared memory against every order of passes that a scenario has, walked step by step,
// and against the addresses that a run accesses.
#include "engine/memory/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "engine/memory/time_line.h"
#include "engine/plan/chunks.h"
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
  explicit Walk(const Scenario& scenario, int stage = 0)
      : scenario_(scenario),
        stage_(stage),
        plan_(plan_memory(scenario, stage)),
        chunks_(chunks_of(scenario, segments(scenario), stage)),
        line_(chunks_) {}

  const MemoryPlan& plan() const { return plan_; }

  // A step, or the microbatches [first, end) of one that is cut.
  std::string train(int first, int end, int count) {
    alive_.clear();
    const bool one_by_one = chunks_.size() > 1 && end - first < count;
    std::string error;
    for (int begin = first; begin < end && error.empty(); begin += one_by_one ? 1 : end - first)
      error = train_at_once(begin, one_by_one ? begin + 1 : end);
    return error;
  }

  std::string evaluate(int count) {
    for (int m = 0; m < count; ++m) {
      alive_.clear();
      for (const Chunk& chunk : chunks_) {
        const std::string error = pass(m, true, chunk.number);
        if (!error.empty()) return error;
      }
    }
    return "";
  }

 private:
  using Key = std::pair<std::size_t, std::size_t>;  // Tensor and life.

  std::string train_at_once(int first, int end) {
    std::string error;
    for (const ScheduledPass& one : pass_order(stage_schedule(scenario_, stage_, end - first))) {
      if (!error.empty()) break;
      error =
          pass(first + static_cast<int>(one.microbatch), one.forward, static_cast<int>(one.chunk));
    }
    return error;
  }
  std::string pass(int microbatch, bool forward, int chunk) {
    const int arrival = line_.arrival(chunk), departure = line_.departure(chunk);
    for (int step = forward ? arrival : line_.backward(departure);
         step <= (forward ? departure : line_.backward(arrival)); ++step) {
      begin(step, microbatch);
      const std::string error = overlap();
      if (!error.empty())
        return error + " in step " + std::to_string(step) + " of microbatch " +
               std::to_string(microbatch);
      end(step, microbatch);
    }
    return "";
  }
  bool is_of(const LivingTensor& tensor, int microbatch) const {
    return tensor.slot == LivingTensor::kAllSlots ||
           std::any_of(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) {
             return chunk.slot_of(microbatch) == tensor.slot;
           });
  }
  void begin(int step, int microbatch) {
    each(microbatch, [&](Key key, const Life& life) {
      const bool always = plan_.tensors[key.first].tensor.is_always_alive;
      if (life.begin == step || always) alive_.insert(key);
    });
  }
  void end(int step, int microbatch) {
    each(microbatch, [&](Key key, const Life& life) {
      if (life.end == step) alive_.erase(key);
    });
  }
  template <class Visit>
  void each(int microbatch, Visit visit) const {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const LivingTensor& tensor = plan_.tensors[i].tensor;
      if (!is_of(tensor, microbatch)) continue;
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
  const int stage_;
  MemoryPlan plan_;
  std::vector<Chunk> chunks_;
  TimeLine line_;
  std::set<Key> alive_;
};

// Whole steps of every count, both parts of a step that is cut anywhere, and evaluations: more
// orders than the plan looks at.
TEST(MemoryPlan, LetsNoTwoTensorsShareBytesThatAreAliveTogether) {
  int seen = 0, with_chunks = 0, with_stages = 0;
  for (int seed = 0; seed < 400; ++seed) {
    const Scenario s = random_scenario_with_graphs(seed);
    if (!is_drawn(s) || !check_legality(s).empty()) continue;
    ++seen;
    with_chunks += s.parallel.chunks > 1;
    with_stages += s.parallel.pipeline > 1;
    for (int stage = 0; stage < s.parallel.pipeline; ++stage) {
      Walk walk(s, stage);
      const std::string where = "seed " + std::to_string(seed) + ", stage " + std::to_string(stage);
      for (const std::int64_t count : counts_of(s)) {
        const int all = static_cast<int>(count);
        EXPECT_EQ(walk.train(0, all, all), "") << where;
        for (const int cut : {1, 2, all / 2, all - 1}) {
          if (cut <= 0 || cut >= all) continue;
          EXPECT_EQ(walk.train(0, cut, all), "") << where << ", cut at " << cut;
          EXPECT_EQ(walk.train(cut, all, all), "") << where << ", cut at " << cut;
        }
        EXPECT_EQ(walk.evaluate(all), "") << where;
      }
    }
  }
  EXPECT_GT(seen, 100);
  EXPECT_GT(with_chunks, 10);
  EXPECT_GT(with_stages, 10);
}

TEST(MemoryPlan, OfVeryManyTensorsIsMadeInTime) {
  Scenario s;
  for (int i = 0; i < 12; ++i) s.model.pattern += "M*-E";
  s.training.microbatches = 9;
  s.training.in_flight = 8;
  s.cuda_graph.shared_memory = true;
  Walk walk(s);
  EXPECT_GT(walk.plan().tensors.size(), 4'000u);
  EXPECT_EQ(walk.train(0, 9, 9), "");
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

// Counts, for LOCKSTEP_PLANS scenarios, how far the memory is above the least that is known: the
// largest sum of live bytes, or, of several chunks, of tensors that meet in pairs, which is not
// always within reach.
TEST(MemoryPlan, TakesAtMostATwentiethMoreThanIsAlive) {
  int seen = 0, above = 0, above_with_one_chunk = 0, first_fit_above = 0, larger = 0;
  double saved = 0, worst = 0, first_fit_worst = 0;
  const int count = scenarios_to_draw(300);
  for (int seed = 0; seed < count; ++seed) {
    const Scenario s = random_scenario_with_graphs(seed);
    if (!is_drawn(s) || !check_legality(s).empty()) continue;
    ++seen;
    const MemoryPlan plan = plan_memory(s);
    const double ratio = static_cast<double>(plan.bytes) / static_cast<double>(plan.least_bytes);
    const double plain =
        static_cast<double>(plan.first_fit_bytes) / static_cast<double>(plan.least_bytes);
    above += ratio > 1.05;
    first_fit_above += plain > 1.05;
    worst = std::max(worst, ratio);
    first_fit_worst = std::max(first_fit_worst, plain);
    EXPECT_GT(plan.tensor_bytes, plan.bytes) << seed;
    larger += plan.saved() <= 0;
    saved += static_cast<double>(plan.saved()) / static_cast<double>(plan.unshared);
    above_with_one_chunk += ratio > 1.05 && s.parallel.chunks == 1;
    EXPECT_GE(plan.least_bytes, plan.peak_bytes) << "seed " << seed;
  }
  std::printf(
      "%d scenarios: %d above 1.05, worst %.4f; first fit by size alone: %d, worst %.4f\n"
      "saved on average %.1f %%, in %d nothing\n",
      seen, above, worst, first_fit_above, first_fit_worst, 100 * saved / seen, larger);
  EXPECT_GT(seen, count / 4);
  EXPECT_EQ(above_with_one_chunk, 0);
  EXPECT_LE(above, seen / 100);
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

// ---- Chunks and stages, by hand ----

struct Expected {
  const char* name;
  int slot;
  Life life;
};

void expect_lives(const MemoryPlan& plan, const std::vector<Expected>& all) {
  for (const Expected& one : all) {
    const auto found = plan.places.find({one.slot, one.name});
    ASSERT_NE(found, plan.places.end()) << one.name << " of slot " << one.slot;
    const std::vector<Life>& lives = plan.tensors[found->second].tensor.lives;
    ASSERT_EQ(lives.size(), 1u) << one.name;
    EXPECT_EQ(lives.front().begin, one.life.begin) << one.name << " of slot " << one.slot;
    EXPECT_EQ(lives.front().forward_end, one.life.forward_end) << one.name;
    EXPECT_EQ(lives.front().end, one.life.end) << one.name << " of slot " << one.slot;
  }
}

Scenario of_pieces(const std::string& pattern, int stages, int group, std::int64_t microbatches) {
  Scenario s;
  s.model.pattern = pattern;
  s.parallel.pipeline = stages;
  s.parallel.chunks = 2;
  s.parallel.group = group;
  s.parallel.schedule = PipelineSchedule::interleaved;
  s.training.microbatches = microbatches;
  s.training.in_flight = scheduled_depth(s);
  s.cuda_graph.shared_memory = true;
  return s;
}

bool share(const PlannedTensor& a, const PlannedTensor& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Steps: F0 is -1 to 1, F1 2 to 4, B1 5 to 7, B0 8 to 10.
TEST(MemoryPlan, HasTheLivesOfTwoChunks) {
  const Scenario s = of_pieces("MM", 1, 2, 2);
  ASSERT_TRUE(check_legality(s).empty());
  // F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1: two slots of either chunk, and those of chunk 1 take
  // turns only in a step with more microbatches.
  ASSERT_EQ(chunk_slots(s), (std::vector<std::int64_t>{2, 1}));
  const MemoryPlan plan = plan_memory(s);
  expect_lives(plan, {{"embedding.out", 0, {-1, 0, 9}},
                      {"layers.0.in_proj", 1, {0, 0, 9}},
                      {"layers.0.proj", 0, {0, 0, 0}},
                      {"layers.0.out", 0, {0, 2, 2}},
                      {"layers.0.out", 2, {2, 3, 6}},
                      {"layers.1.in_proj", 2, {3, 3, 6}},
                      {"layers.1.out", 2, {3, 4, 5}},
                      {"logits", 2, {4, 4, 5}},
                      {"dlogits", 2, {5, 4, 5}},
                      {"residual_gradient.2", 2, {5, 4, 6}},
                      {"residual_gradient.1", 2, {6, 5, 7}},
                      {"output_gradient", 0, {7, 6, 9}},
                      {"residual_gradient.0", 1, {9, 8, 10}}});
  EXPECT_FALSE(plan.places.contains({0, "logits"}));
  EXPECT_FALSE(plan.places.contains({2, "output_gradient"}));
  // Microbatch 1 runs through chunk 0 while the output of microbatch 0 waits for chunk 1.
  const PlannedTensor& waits = *plan.find("layers.0.out", 0);
  EXPECT_FALSE(share(waits, *plan.find("layers.0.proj", 1)));
  EXPECT_FALSE(share(waits, *plan.find("embedding.out", 1)));
  // The gradient of microbatch 0 waits while microbatch 1 runs through chunk 1 in both passes.
  EXPECT_FALSE(share(*plan.find("output_gradient", 0), *plan.find("layers.1.in_proj", 2)));
}

// One after the other a microbatch leaves nothing to the next, and of two all is alive twice.
TEST(MemoryPlan, FollowsTheGroupsOfChunks) {
  const MemoryPlan alone = plan_memory(of_pieces("MM", 1, 1, 1)),
                   together = plan_memory(of_pieces("MM", 1, 2, 2)),
                   of_three = plan_memory(of_pieces("MM", 1, 2, 3));
  EXPECT_LT(alone.bytes, together.bytes);
  EXPECT_LT(together.bytes, of_three.bytes) << "a third slot of chunk 0";
  EXPECT_LT(together.bytes, together.tensor_bytes);
}

// Stage 0 has layers 0 and 2, stage 1 has layers 1 and 3; steps as above.
TEST(MemoryPlan, HasTheLivesOfTwoStagesWithTwoChunks) {
  const Scenario s = of_pieces("MMMM", 2, 2, 4);
  ASSERT_TRUE(check_legality(s).empty());
  const std::vector<std::int64_t> first = chunk_slots(s, 0), last = chunk_slots(s, 1);
  const int of_first = static_cast<int>(first.front()), of_last = static_cast<int>(last.front());
  const MemoryPlan plan = plan_memory(s, 0);
  // An output lasts until its gradient comes, which is when its backward pass begins.
  expect_lives(plan, {{"embedding.out", 0, {-1, 0, 9}},
                      {"layers.0.out", 1, {0, 4, 8}},
                      {"layers.2.out", of_first, {3, 4, 5}},
                      {"residual_gradient.2", of_first, {6, 5, 7}},
                      {"residual_gradient.0", 0, {9, 8, 10}}});
  for (int slot = 0; slot < of_first + first.back(); ++slot) {
    EXPECT_FALSE(plan.places.contains({slot, "layers.1.out"})) << "what is received";
    EXPECT_FALSE(plan.places.contains({slot, "output_gradient"})) << "what is received";
    EXPECT_FALSE(plan.places.contains({slot, "logits"})) << "of the other stage";
  }
  const MemoryPlan behind = plan_memory(s, 1);
  expect_lives(behind, {{"layers.1.out", 0, {0, 4, 8}},
                        {"layers.3.out", of_last, {3, 4, 5}},
                        {"logits", of_last, {4, 4, 5}},
                        {"residual_gradient.4", of_last, {5, 4, 6}}});
  EXPECT_FALSE(behind.places.contains({0, "embedding.out"}));
  EXPECT_FALSE(behind.places.contains({0, "layers.0.out"})) << "what is received";
  EXPECT_LT(behind.tensor_bytes, plan.tensor_bytes) << "fewer microbatches are in flight";
  EXPECT_THAT(plan.peak_place, testing::HasSubstr("through chunk "));
}

TEST(MemoryPlan, LetsChunksShareWithEachOther) {
  const Scenario s = of_pieces("MM", 1, 2, 4);
  const std::vector<Chunk> chunks = chunks_of(s, segments(s));
  const MemoryPlan plan = plan_memory(s);
  int pairs = 0;
  for (const PlannedTensor& a : plan.tensors) {
    for (const PlannedTensor& b : plan.tensors)
      pairs += a.tensor.slot < chunks[1].first_slot && b.tensor.slot >= chunks[1].first_slot &&
               share(a, b);
  }
  EXPECT_GT(pairs, 0);
  EXPECT_LT(plan.bytes, plan.apart_bytes);
  Scenario one = s;
  one.parallel.chunks = one.parallel.group = 1;
  one.parallel.schedule = PipelineSchedule::one_forward_one_backward;
  const MemoryPlan of_one = plan_memory(one);
  EXPECT_EQ(of_one.apart_bytes, of_one.peak_bytes);
}

// ---- A run --------------------------------------------------------------------------------------

// Attributes every access of an eager training step to a step of the time line, and finds the
// tensor that the plan has there. Every region is whole layers.
class Accesses : public Observer {
 public:
  explicit Accesses(const Scenario& scenario)
      : scenario_(scenario),
        plan_(plan_memory(scenario)),
        chunks_(chunks_of(scenario, segments(scenario))),
        line_(chunks_),
        seen_(plan_.tensors.size()) {
    const std::vector<Segment> all = segments(scenario);
    for (const Chunk& chunk : chunks_) {
      for (int i = chunk.first_segment; i < chunk.end_segment; ++i) {
        for (const Part& part : all[i].parts)
          step_of_[part.layer] = line_.step(chunk.number, i - chunk.first_segment);
      }
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
      note(issued.place, copied->to, static_cast<std::int64_t>(copied->bytes));
    }
  }

  // Tensors whose first or last access is not where the plan has it.
  std::string inexact() const {
    std::string list;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const LivingTensor& tensor = plan_.tensors[i].tensor;
      if (tensor.is_buffer) continue;
      int begin = line_.backward(-1) + 1, end = -2;
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
  // There are at most two chunks, so that copies between them have one place. A router's losses
  // are read behind the layers of its chunk.
  int step_of(const StepLocation& place) {
    const std::string part = place.part;
    const bool embedding = part == "embedding" || part == "metadata";
    const bool between = part == "chunk input" || part == "chunk gradient";
    const bool head = part == "final_norm" || part == "head" || part == "loss";
    const int step = place.layer >= 0 ? step_of_.at(place.layer)
                     : embedding      ? -1
                     : between        ? line_.arrival(1)
                     : head           ? line_.last_forward()
                                      : line_.departure(last_chunk_);
    last_chunk_ = line_.place(step).chunk;
    return place.backward ? line_.backward(step) : step;
  }
  bool is_of(const LivingTensor& tensor, int microbatch) const {
    return tensor.slot == LivingTensor::kAllSlots ||
           std::any_of(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) {
             return chunk.slot_of(microbatch) == tensor.slot;
           });
  }
  void note(const StepLocation& place, const void* memory, std::int64_t bytes) {
    if (base_ == nullptr || memory == nullptr) return;
    const std::int64_t offset = static_cast<const std::byte*>(memory) - base_;
    if (offset < 0 || offset >= plan_.bytes) return;
    const int step = step_of(place);
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& one = plan_.tensors[i];
      if (!is_of(one.tensor, place.microbatch)) continue;
      if (offset < one.offset || offset + bytes > one.offset + one.bytes) continue;
      for (const Life& life : one.tensor.lives) {
        const bool is_alive = life.begin <= step && step <= life.end;
        if (!is_alive && !one.tensor.is_always_alive) continue;
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
  std::vector<Chunk> chunks_;
  TimeLine line_;
  std::map<int, int> step_of_;
  int last_chunk_ = 0;
  std::vector<std::set<int>> seen_;
  const std::byte* base_ = nullptr;
  std::string outside_;
};

TEST(MemoryPlan, HasTheLivesThatARunHas) {
  for (const char* pattern : {"*-M*-", "M-*", "E*E", "*E-"}) {
    for (const auto& [offloads, chunks] :
         {std::pair<bool, int>{false, 1}, {true, 1}, {false, 2}, {true, 2}}) {
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
      if (chunks > 1) {
        s.parallel.chunks = s.parallel.group = chunks;
        s.parallel.schedule = PipelineSchedule::interleaved;
        s.training.in_flight = scheduled_depth(s);
      }
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
