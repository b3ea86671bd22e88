// The orders of passes: those of Megatron-LM (pass_orders.txt, made by generate.py), and what must
// hold of every order. One claim that a stage alone cannot show is shown with all stages together:
// that no two of them wait for each other.
#include "scenarios/pass_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "scenarios/schema/words.h"
#include "tests/support/tree.h"

namespace lockstep {
namespace {

PipelineSchedule schedule_of(const std::string& name) {
  const std::vector<std::string>& names = words<PipelineSchedule>();
  return static_cast<PipelineSchedule>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::string text_of(const std::vector<ScheduledPass>& passes) {
  std::ostringstream out;
  for (const ScheduledPass& pass : passes)
    out << ' ' << (pass.forward ? 'F' : 'B') << pass.chunk << pass.microbatch;
  return out.str();
}

TEST(PassOrder, IsThatOfMegatron) {
  std::ifstream golden(root_path() + "/tests/scenarios/schedule/pass_orders.txt");
  int compared = 0;
  for (std::string line; std::getline(golden, line); ++compared) {
    std::istringstream in(line);
    std::string name, rest;
    StageSchedule stage;
    in >> name >> stage.stages >> stage.stage >> stage.chunks >> stage.group >> stage.microbatches;
    std::getline(in, rest);
    stage.schedule = schedule_of(name);
    EXPECT_EQ(text_of(pass_order(stage)), rest) << line;
  }
  EXPECT_GT(compared, 500);
}

bool is_legal(const StageSchedule& one) {
  const std::int64_t rest = one.microbatches % one.group;
  return rest == 0 || rest >= one.stages;
}

// Every legal order of small pipelines, all stages of each together.
template <class Check>
void for_all_pipelines(Check check) {
  int pipelines = 0;
  for (const auto schedule : {PipelineSchedule::one_forward_one_backward,
                              PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    const bool one_chunk = schedule == PipelineSchedule::one_forward_one_backward;
    for (std::int64_t stages = 1; stages <= 5; ++stages) {
      for (std::int64_t chunks = 1; chunks <= (one_chunk ? 1 : 4); ++chunks) {
        if (chunks == 1 && schedule == PipelineSchedule::interleaved) continue;
        for (std::int64_t microbatches = stages; microbatches <= 11; ++microbatches) {
          for (std::int64_t group = stages; group <= microbatches; ++group) {
            std::vector<StageSchedule> all;
            for (std::int64_t stage = 0; stage < stages; ++stage)
              all.push_back({schedule, stage, stages, chunks, group, microbatches});
            if (!is_legal(all.front())) continue;
            SCOPED_TRACE(word(schedule) + ", stages " + std::to_string(stages) + ", chunks " +
                         std::to_string(chunks) + ", group " + std::to_string(group) +
                         ", microbatches " + std::to_string(microbatches));
            check(all);
            ++pipelines;
          }
        }
      }
    }
  }
  EXPECT_GT(pipelines, 1000);
}

TEST(PassOrder, RunsEachPassOnceAndBackwardBehindForwardAndAscending) {
  for_all_pipelines([](const std::vector<StageSchedule>& stages) {
    for (const StageSchedule& stage : stages) {
      std::map<std::pair<bool, std::int64_t>, std::int64_t> next;  // By kind and chunk.
      for (const ScheduledPass& pass : pass_order(stage)) {
        ASSERT_EQ(pass.microbatch, (next[{pass.forward, pass.chunk}]++)) << pass;
        if (!pass.forward) {
          ASSERT_GT((next[{true, pass.chunk}]), pass.microbatch) << pass;
        }
      }
      for (std::int64_t chunk = 0; chunk < stage.chunks; ++chunk) {
        ASSERT_EQ((next[{true, chunk}]), stage.microbatches);
        ASSERT_EQ((next[{false, chunk}]), stage.microbatches);
      }
    }
  });
}

// Each stage runs its passes in its order, a pass only behind that of the piece before it (forward)
// or behind it (backward). Returns a stage of which a pass never comes to run; -1 if all do.
std::int64_t stage_that_waits(const std::vector<std::vector<ScheduledPass>>& orders,
                              std::int64_t chunks) {
  const std::int64_t count = std::ssize(orders), pieces = count * chunks;
  std::set<std::tuple<bool, std::int64_t, std::int64_t>> done;  // Kind, piece, microbatch.
  std::vector<std::size_t> next(orders.size());
  for (bool any = true; std::exchange(any, false);) {
    for (std::int64_t s = 0; s < count; ++s) {
      while (next[s] < orders[s].size()) {
        const auto [forward, chunk, microbatch] = orders[s][next[s]];
        const std::int64_t piece = chunk * count + s;
        const bool first = piece == (forward ? 0 : pieces - 1);
        const std::int64_t before = piece + (forward ? -1 : 1);
        if (!first && !done.contains({forward, before, microbatch})) break;
        done.insert({forward, piece, microbatch});
        ++next[s];
        any = true;
      }
    }
  }
  for (std::int64_t s = 0; s < count; ++s) {
    if (next[s] < orders[s].size()) return s;
  }
  return -1;
}

TEST(PassOrder, NeverLetsStagesWaitForEachOther) {
  for_all_pipelines([](const std::vector<StageSchedule>& stages) {
    std::vector<std::vector<ScheduledPass>> orders;
    for (const StageSchedule& stage : stages) orders.push_back(pass_order(stage));
    ASSERT_EQ(stage_that_waits(orders, stages.front().chunks), -1);
  });
}

// The parts of a step that ends or begins anywhere, whatever is left of a group.
TEST(PassOrder, NeverLetsStagesWaitForEachOtherInAPartOfAStep) {
  int circles = 0;
  for (std::int64_t stages = 2; stages <= 5; ++stages) {
    for (std::int64_t chunks = 2; chunks <= 4; ++chunks) {
      for (std::int64_t group = stages; group <= 7; ++group) {
        for (std::int64_t count = 1; count <= 15; ++count) {
          std::vector<std::vector<ScheduledPass>> orders, cut;
          for (std::int64_t stage = 0; stage < stages; ++stage) {
            const StageSchedule part{PipelineSchedule::interleaved, stage, stages, chunks,
                                     std::min(group, count),        count};
            orders.push_back(part_order(part));
            cut.push_back(pass_order(part));
            ASSERT_EQ(std::ssize(orders.back()), 2 * chunks * count);
            if (is_legal(part) && count >= stages) {
              ASSERT_EQ(orders.back(), cut.back());
            }
          }
          ASSERT_EQ(stage_that_waits(orders, chunks), -1)
              << stages << " stages, " << chunks << " chunks, groups of " << group << ", " << count;
          circles += stage_that_waits(cut, chunks) >= 0;
        }
      }
    }
  }
  EXPECT_GT(circles, 0) << "in the order of a whole step";
}

TEST(PassOrder, RunsWhatIsLeftOfGroupsAlone) {
  const StageSchedule part{PipelineSchedule::interleaved, 1, 2, 2, 3, 4};
  EXPECT_EQ(text_of(part_order(part)).substr(4 * 12), " F03 F13 B13 B03");
  EXPECT_EQ(text_of(part_order({PipelineSchedule::interleaved, 0, 3, 2, 2, 2})),
            " F00 F10 B10 B00 F01 F11 B11 B01");
}

TEST(PassOrder, HasTheFirstChunkMostlyInFlight) {
  for_all_pipelines([](const std::vector<StageSchedule>& stages) {
    for (const StageSchedule& stage : stages) {
      const auto most = most_in_flight(pass_order(stage), stage.chunks);
      for (const std::int64_t depth : most) ASSERT_LE(depth, most.front());
    }
  });
}

Scenario with(std::int64_t chunks, PipelineSchedule schedule, std::int64_t microbatches,
              std::int64_t group) {
  Scenario s;
  s.model.pattern = "M*-M";
  s.training.microbatches = microbatches;
  s.parallel.chunks = chunks;
  s.parallel.schedule = schedule;
  s.parallel.group = group;
  return s;
}

TEST(PassOrder, SaysTheSlotsOfEachChunk) {
  using testing::ElementsAre;
  EXPECT_THAT(chunk_slots(with(1, PipelineSchedule::one_forward_one_backward, 4, 1)),
              ElementsAre(2));  // As the scenario says.
  EXPECT_THAT(chunk_slots(with(1, PipelineSchedule::gpipe, 4, 1)), ElementsAre(4));
  EXPECT_THAT(chunk_slots(with(2, PipelineSchedule::interleaved, 4, 2)), ElementsAre(3, 1));
  EXPECT_THAT(chunk_slots(with(3, PipelineSchedule::interleaved, 2, 1)), ElementsAre(2, 1, 1));
  // Six microbatches may be left of a step: a group of four, and one of two.
  EXPECT_THAT(chunk_slots(with(2, PipelineSchedule::interleaved, 8, 4)), ElementsAre(5, 2));
  EXPECT_THAT(chunk_slots(with(2, PipelineSchedule::gpipe, 3, 1)), ElementsAre(3, 3));
  // The largest of all counts, of which neither the first nor the last is.
  Scenario s = with(2, PipelineSchedule::gpipe, 2, 1);
  s.training.change_microbatches_at = {{1, 5}, {2, 3}};
  EXPECT_THAT(chunk_slots(s), ElementsAre(5, 5));
}

// The slots are counted from places in the orders; here from the orders themselves.
TEST(PassOrder, HasSlotsForEveryPartOfAStep) {
  for (const PipelineSchedule schedule : {PipelineSchedule::one_forward_one_backward,
                                          PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    for (std::int64_t stages = 1; stages <= 4; ++stages) {
      for (std::int64_t chunks = 1; chunks <= 4; ++chunks) {
        for (std::int64_t group = 1; group <= 7; ++group) {
          for (std::int64_t microbatches = 1; microbatches <= 23; ++microbatches) {
            Scenario s = with(chunks, schedule, microbatches, group);
            s.parallel.pipeline = stages;
            if (!depth_follows(s)) continue;
            for (std::int64_t stage = 0; stage < stages; ++stage) {
              std::vector<std::int64_t> want(chunks);
              for (std::int64_t count = 1; count <= microbatches; ++count) {
                const StageSchedule part = stage_schedule(s, stage, count);
                const auto most = most_in_flight(pass_order(part), chunks),
                           parted = most_in_flight(part_order(part), chunks);
                for (std::size_t i = 0; i < want.size(); ++i) {
                  ASSERT_LE(parted[i], most[i]);
                  want[i] = std::max(want[i], most[i]);
                }
              }
              ASSERT_EQ(chunk_slots(s, stage), want)
                  << stages << " stages, " << chunks << " chunks, groups of " << group << ", "
                  << microbatches << " microbatches, stage " << stage;
            }
          }
        }
      }
    }
  }
}

TEST(PassOrder, CutsTheBlocksIntoPieces) {
  using testing::ElementsAre;
  EXPECT_THAT(blocks_of_pieces(7, 3), ElementsAre(3, 2, 2));
  EXPECT_THAT(blocks_of_pieces(4, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(blocks_of_pieces(5, 1), ElementsAre(5));
}

}  // namespace
}  // namespace lockstep
