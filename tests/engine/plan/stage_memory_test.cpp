// Stages send from memory that is used again without anybody waiting for the reader: the
// orders of the passes alone see to it that it has been read.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "engine/plan/chunks.h"
#include "engine/plan/schedule.h"
#include "kernels/core/at.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

// By stage, how many of its passes come before.
using Clock = std::vector<int>;

class StepOrder {
 public:
  explicit StepOrder(const Scenario& scenario)
      : stages_(static_cast<int>(scenario.parallel.pipeline)) {
    for (int stage = 0; stage < stages_; ++stage) {
      chunks_.push_back(chunks_of(scenario, {}, stage));
      passes_.push_back(
          passes_of_step(scenario, 0, static_cast<int>(scenario.training.microbatches), stage));
    }
    pieces_ = static_cast<int>(pieces_of(scenario));
    run();
  }
  // Whether all passes can run.
  bool is_complete() const {
    std::size_t all = 0;
    for (const auto& passes : passes_) all += passes.size();
    return clocks_.size() == all;
  }
  int pieces() const { return pieces_; }
  const Chunk& chunk(int piece) const { return at(at(chunks_, piece % stages_), piece / stages_); }
  // Whether the first pass has ended when the second begins, whatever takes how long. A pass of no
  // microbatch of the step has.
  bool comes_before(bool forward, int piece, int microbatch, bool then_forward, int then_piece,
                    int then_microbatch) const {
    if (microbatch < 0) return true;
    const auto& [number, unused] = clocks_.at({forward, piece, microbatch});
    const auto& [then, clock] = clocks_.at({then_forward, then_piece, then_microbatch});
    return at(clock, piece % stages_) > number;
  }

 private:
  using Key = std::tuple<bool, int, int>;
  void run() {
    std::vector<std::size_t> next(static_cast<std::size_t>(stages_));
    std::vector<Clock> now(static_cast<std::size_t>(stages_),
                           Clock(static_cast<std::size_t>(stages_)));
    for (bool moves = true; moves;) {
      moves = false;
      for (int stage = 0; stage < stages_; ++stage) {
        std::size_t& index = at(next, stage);
        while (index < at(passes_, stage).size() && may_run(stage, index, at(now, stage))) {
          at(at(now, stage), stage) = static_cast<int>(++index);
          moves = true;
        }
      }
    }
  }
  // Joins what the pass waits for.
  bool may_run(int stage, std::size_t index, Clock& now) {
    const Pass& pass = at(passes_, stage)[index];
    const int piece = pass.chunk * stages_ + stage, from = pass.forward ? piece - 1 : piece + 1;
    if (from >= 0 && from < pieces_) {
      const auto found = clocks_.find({pass.forward, from, pass.microbatch});
      if (found == clocks_.end()) return false;
      const auto& [number, clock] = found->second;
      for (int i = 0; i < stages_; ++i) at(now, i) = std::max(at(now, i), at(clock, i));
      int& of_sender = at(now, from % stages_);
      of_sender = std::max(of_sender, number + 1);
    }
    clocks_[{pass.forward, piece, pass.microbatch}] = {static_cast<int>(index), now};
    return true;
  }

  const int stages_;
  int pieces_ = 0;
  std::vector<std::vector<Chunk>> chunks_;
  std::vector<std::vector<Pass>> passes_;
  std::map<Key, std::pair<int, Clock>> clocks_;  // And the number of the pass in its stage.
};

// Every schedule of up to 5 stages, 3 chunks and 9 microbatches.
template <class Judge>
void for_each_order(const Judge& judge) {
  int orders = 0;
  for (const auto schedule : {PipelineSchedule::one_forward_one_backward,
                              PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    for (std::int64_t stages = 2; stages <= 5; ++stages) {
      for (std::int64_t chunks = 1; chunks <= 3; ++chunks) {
        for (std::int64_t microbatches = 1; microbatches <= 9; ++microbatches) {
          for (std::int64_t group = stages; group <= std::max(stages, microbatches); ++group) {
            Scenario s;
            s.model.pattern = std::string(static_cast<std::size_t>(stages * chunks), 'M');
            s.parallel.pipeline = stages;
            s.parallel.chunks = chunks;
            s.parallel.schedule = schedule;
            s.parallel.group = group;
            s.training.microbatches = microbatches;
            s.training.in_flight = scheduled_depth(s);
            if (!check_legality(s).empty()) continue;
            SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(chunks) +
                         " chunks, " + std::to_string(microbatches) + " microbatches, groups of " +
                         std::to_string(group));
            judge(StepOrder(s), static_cast<int>(microbatches));
            ++orders;
          }
        }
      }
    }
  }
  EXPECT_GT(orders, 300);
}

TEST(StageMemory, PassesNeverWaitInACircle) {
  for_each_order([](const StepOrder& order, int) { EXPECT_TRUE(order.is_complete()); });
}

// A slot's output is sent from where it lies, and the next one is written there.
TEST(StageMemory, AnOutputIsReadBeforeItsSlotIsWrittenAgain) {
  for_each_order([](const StepOrder& order, int microbatches) {
    for (int piece = 0; piece + 1 < order.pieces(); ++piece) {
      const int slots = order.chunk(piece).slots;
      for (int m = 0; m < microbatches; ++m)
        EXPECT_TRUE(order.comes_before(true, piece + 1, m - slots, true, piece, m));
    }
  });
}

TEST(StageMemory, AGradientIsReadBeforeTheNextOneTakesItsPlace) {
  for_each_order([](const StepOrder& order, int microbatches) {
    for (int piece = 1; piece < order.pieces(); ++piece) {
      const int places = order.chunk(piece).slots_before;
      ASSERT_GT(places, 0);
      EXPECT_EQ(places, order.chunk(piece - 1).slots);
      for (int m = 0; m < microbatches; ++m)
        EXPECT_TRUE(order.comes_before(false, piece - 1, m - places, false, piece, m));
    }
  });
}

// It is received into a slot that its microbatch has, whose earlier one has gone.
TEST(StageMemory, AGradientComesWhenItsSlotIsFree) {
  for_each_order([](const StepOrder& order, int microbatches) {
    for (int piece = 0; piece + 1 < order.pieces(); ++piece) {
      const int slots = order.chunk(piece).slots;
      for (int m = 0; m < microbatches; ++m)
        EXPECT_TRUE(order.comes_before(false, piece, m - slots, false, piece + 1, m));
    }
  });
}

// A tied weight has them, from the last piece to the first one.
TEST(StageMemory, AHeadsGradientIsReadBeforeTheNextOneTakesItsPlace) {
  for_each_order([](const StepOrder& order, int microbatches) {
    const int places = order.chunk(0).slots, last = order.pieces() - 1;
    for (int m = 0; m < microbatches; ++m)
      EXPECT_TRUE(order.comes_before(false, 0, m - places, false, last, m));
  });
}

}  // namespace
}  // namespace lockstep
