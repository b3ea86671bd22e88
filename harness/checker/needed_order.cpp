#include "harness/checker/needed_order.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "harness/checker/hazard.h"
#include "kernels/core/at.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

bool in_groups(Lane lane) {
  return lane != Lane::host && lane != Lane::compute && lane != Lane::loads;
}

// True for collectives, in graphs too: all of a communicator run in order. Transfers do not.
bool is_exchange(const Work& work) {
  const std::string_view name = work.name;
  return name.starts_with("all_") || name.starts_with("reduce_scatter");
}

// The host, judges that read, and all that precedes the first step may have any order.
bool is_free(Lane lane, const Work& work) {
  return lane == Lane::host || looks(work.place) || work.place.step < 0;
}

bool is_over(const Clock& clock, int thread, std::uint64_t time) {
  return clock.at(thread) >= time;
}

}  // namespace

Lane lane_named(const std::string& stream) {
  if (stream == "compute") return Lane::compute;
  if (stream == "d2h") return Lane::copies_out;
  if (stream == "h2d") return Lane::copies_back;
  if (stream == "gather") return Lane::gathers;
  if (stream == "loader") return Lane::loads;
  if (stream == "reduce") return Lane::reductions;
  if (stream.starts_with("send ")) return Lane::sends;
  return Lane::other;
}

DeclaredOrder declared_order(const Scenario& scenario) {
  DeclaredOrder declared{
      .max_inflight = scenario.offload.max_inflight,
      .captured_copies = scenario.offload.captured,
      .rotates = scenario.offload.pool_slack > 0,
      .copies_may_be_empty = scenario.model.moe.host_sync,
      .gradient_slots = scenario.fsdp.strategy == Sharding::optim_grads ||
                        scenario.fsdp.strategy == Sharding::optim_grads_params,
      .exchanges_in_layers = expert_ranks(scenario) > 1,
      .weights_stay = (scenario.fsdp.strategy == Sharding::optim ||
                       scenario.fsdp.strategy == Sharding::optim_grads) &&
                      !scenario.fp8.param_gather,
      .whole_steps = scenario.cuda_graph.impl == GraphImpl::full_iteration,
      .inputs_leave = scenario.parallel.pipeline > 1 && !scenario.offload.modules.empty()};
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  for (const Scenario::Block& block : blocks) {
    for (int layer = block.first; layer < block.first + block.count; ++layer) {
      const bool together = scenario.cuda_graph.impl == GraphImpl::partial;
      declared.stretch_of_layer.push_back(together ? block.first : layer);
    }
  }
  std::int64_t end = 0, piece = 0;
  for (const std::int64_t count : blocks_of_pieces(std::ssize(blocks), pieces_of(scenario))) {
    end += count;
    for (std::int64_t block = end - count; block < end; ++block) {
      const bool is_last = block + 1 == end && end < std::ssize(blocks);
      declared.ends_a_piece.insert(declared.ends_a_piece.end(), at(blocks, block).count, is_last);
      declared.piece_of_layer.insert(declared.piece_of_layer.end(), at(blocks, block).count, piece);
    }
    ++piece;
  }
  return declared;
}

// ---- Calls --------------------------------------------------------------------------------------

void NeededOrder::performs(const Item& item, const std::vector<Touch>& touches, const Clock& has) {
  const std::uint64_t time = has.at(item.thread);
  if (!stretches_.goes_on(item.thread, item.work, in_groups(item.lane))) judge(item.thread);
  Clock& needed = needed_[item.thread];
  const bool behind_transfers = declared_.inputs_leave && item.lane == Lane::copies_back;
  if (is_free(item.lane, item.work) || behind_transfers) needed.join(has);
  const bool gathers_own = gathers_own_update(item, touches);
  justify(item, touches);
  needed.reach(item.thread, time);
  Stretch& stretch =
      stretches_.add(item.thread, time, item.work, in_groups(item.lane), item.stream);
  stretch.gathers_own_update |= gathers_own;
  if (is_behind_updates(item.lane, item.work.place))
    stretch.forked = ranks_[item.work.place.rank].outside_of_passes;
  stretch.needed = needed;
  stretch.has = has;
  for (const Touch& touch : touches) memory_[touch.allocation].add(touch, needed);
  note(item, has);
}

void NeededOrder::begins_call(int thread, int rank, const Clock& has) {
  ranks_[rank].calls.push_back({thread, has.at(thread)});
}

void NeededOrder::awaits_peers(int event, int thread) {
  needed_[thread].join(recorded_[event]);
  Stretch* const last = stretches_.last(thread);
  const bool goes_on =
      last != nullptr && (last->group < 0 || last->group == stretches_.group(thread));
  if (goes_on) last->needed.join(recorded_[event]);
}

// No node of a launch starts before everything that any of its nodes waits for outside the graph.
// The first lane is judged, so the others may have what it has.
void NeededOrder::launches(int graph, const std::vector<int>& threads, int rank, const Clock& has) {
  Clock& first = needed_[threads.front()];
  first.join(finished_[graph]);
  if (declared_.whole_steps) first.join(ranks_[rank].moved);
  for (std::size_t lane = 1; lane < threads.size(); ++lane) needed_[threads[lane]].join(has);
}

void NeededOrder::launched(int graph, const std::vector<int>& threads) {
  Clock end;
  for (const int thread : threads) end.join(needed_[thread]);
  needed_[threads.front()].join(end);
  finished_[graph] = end;
}

// ---- What is needed -----------------------------------------------------------------------------

void NeededOrder::justify(const Item& item, const std::vector<Touch>& touches) {
  Clock& needed = needed_[item.thread];
  // A peer's call within a layer makes the middle of that layer known. The engine's edge begins at
  // the layer's end, so an access to the layer asks for all of it.
  const Clock whole = declared_.exchanges_in_layers ? stretches_.whole_ones(needed) : Clock();
  const Clock& known = declared_.exchanges_in_layers ? whole : needed;
  for (const Touch& touch : touches) {
    Touch asks = touch;
    if (item.lane == Lane::copies_out) asks.mode = Access::accum;  // Behind the last reader, too.
    for (const Touch& earlier : memory_[touch.allocation].unordered(asks, known)) {
      if (earlier.thread == item.thread) continue;
      needed.join(stretches_.waited_for(earlier.thread, earlier.time, item.work).needed);
      if (item.lane == Lane::compute) join_own_call(item.work, earlier, needed);
    }
  }
  const Rank& rank = ranks_[item.work.place.rank];
  needed.join(rank.loaded);
  if (is_exchange(item.work)) needed.join(rank.exchanged);
  // What comes back of a microbatch has been made of what this rank has sent of it.
  if (std::string_view(item.work.name) == "receive") {
    const auto sent = rank.transfers_out.find(item.work.place.microbatch);
    if (sent != rank.transfers_out.end()) needed.join(sent->second);
  }
  if (item.lane == Lane::compute) {
    needed.join(rank.throttled);
    needed.join(rank.reused);
  }
  if (item.lane == Lane::gathers && !is_behind_updates(item.lane, item.work.place))
    needed.join(rank.outside_of_passes);
  if (item.lane == Lane::copies_out && declared_.rotates) needed.join(rank.brought_back);
  if (declared_.inputs_leave && item.stream == "receive forward") needed.join(rank.submitted);
  // A transfer to another stage forks from compute, which may have waited for copies before.
  if (item.lane == Lane::sends) needed.join(rank.throttled);
  if (declared_.captured_copies) needed.join(queue(rank, item.lane));
  if (item.lane == Lane::copies_back) {
    needed.join(rank.submitted);
    if (declared_.copies_may_be_empty) needed.join(rank.throttled);
  }
  round_up(needed, item);
}

bool NeededOrder::is_behind_updates(Lane lane, const StepLocation& place) const {
  return declared_.weights_stay && lane == Lane::gathers && place.microbatch < 0;
}

// Whether it reads what an update of its own rank has just written.
bool NeededOrder::gathers_own_update(const Item& item, const std::vector<Touch>& touches) {
  const StepLocation& place = item.work.place;
  if (!is_behind_updates(item.lane, place)) return false;
  return std::ranges::any_of(touches, [&](const Touch& touch) {
    const auto earlier = memory_[touch.allocation].unordered(touch, needed_[item.thread]);
    return touch.mode == Access::in && std::ranges::any_of(earlier, [&](const Touch& one) {
             return is_update(one.work) && one.work.place.rank == place.rank &&
                    one.work.place.step == place.step;
           });
  });
}

// Graphs with copies are launched beside compute's stream. Compute and copies of a direction go in
// the order of their calls anyway, in graphs or not.
const Clock& NeededOrder::queue(const Rank& rank, Lane lane) {
  static const Clock kNothing;
  switch (lane) {
    case Lane::compute:
      return rank.submitted;
    case Lane::copies_out:
      return rank.sent;
    case Lane::copies_back:
      return rank.brought_back;
    default:
      return kNothing;
  }
}

// A peer reads what this rank wrote in a call that is this rank's too: the rank waits for its own
// part.
void NeededOrder::join_own_call(const Work& waiter, const Touch& of_peer, Clock& needed) {
  const int peer = of_peer.work.place.rank, rank = waiter.place.rank;
  if (peer == rank) return;
  const std::vector<Call>& theirs = ranks_[peer].calls;
  const auto call = std::find_if(theirs.rbegin(), theirs.rend(), [&](const Call& one) {
    return one.thread == of_peer.thread && one.time < of_peer.time;
  });
  if (call == theirs.rend()) return;
  const std::ptrdiff_t number = theirs.rend() - call - 1;
  const std::vector<Call>& own = ranks_[rank].calls;
  if (number >= std::ssize(own)) return;
  const Call& mine = at(own, number);
  const bool has_items = needed_[mine.thread].at(mine.thread) > mine.time;
  if (has_items) needed.join(stretches_.waited_for(mine.thread, mine.time + 1, waiter).needed);
}

// Copies of a group share an event, so waiting for any of them means waiting for the last.
void NeededOrder::round_up(Clock& needed, const Item& item) const {
  for (const auto& [thread, list] : stretches_.all()) {
    const std::uint64_t time = needed.at(thread);
    if (list.back().group < 0 || thread == item.thread || time == 0) continue;
    const Clock& group = stretches_.waited_for(thread, time, item.work).needed;
    if (group.at(thread) > time) needed.join(group);
  }
}

// ---- What is under way --------------------------------------------------------------------------

void NeededOrder::note(const Item& item, const Clock& has) {
  Rank& rank = ranks_[item.work.place.rank];
  const Clock& needed = needed_[item.thread];
  const std::uint64_t time = has.at(item.thread);
  if (is_exchange(item.work)) rank.exchanged.join(needed);
  if (std::string_view(item.work.name) == "send")
    rank.transfers_out[item.work.place.microbatch].join(needed);
  if (in_groups(item.lane)) rank.moved.join(needed);
  if (item.lane == Lane::loads) rank.loaded.join(needed);
  if (item.lane == Lane::gathers) begin(rank.gathers, item, time);
  if (item.lane == Lane::copies_out) {
    rank.sent.join(needed);
    begin(rank.out, item, time);
    note_copy_out(item, rank);
  }
  if (item.lane == Lane::copies_back) {
    rank.brought_back.join(needed);
    begin(rank.back, item, time);
    const Touch& last = rank.last_of_compute;
    rank.back.back().runs_beside |= !is_over(has, last.thread, last.time);
  }
  if (item.lane == Lane::reductions && declared_.gradient_slots) note_reduction(item, rank);
  if (item.lane == Lane::compute) note_compute(item, rank, has);
}

void NeededOrder::begin(std::vector<UnderWay>& list, const Item& item, std::uint64_t time) const {
  const std::int64_t group = stretches_.group(item.thread);
  if (list.empty() || list.back().thread != item.thread || list.back().group != group)
    list.push_back({.thread = item.thread, .time = time, .group = group, .work = item.work});
  list.back().time = time;
}

void NeededOrder::note_copy_out(const Item& item, Rank& rank) {
  const Clock& needed = needed_[item.thread];
  if (declared_.copies_may_be_empty) rank.throttled.join(needed);
  const std::pair group(item.thread, stretches_.group(item.thread));
  if (std::exchange(rank.last_copy, group) != group || rank.copies_out.empty())
    rank.copies_out.emplace_back();
  rank.copies_out.back() = needed;
  while (declared_.max_inflight && std::ssize(rank.copies_out) > *declared_.max_inflight) {
    rank.throttled.join(rank.copies_out.front());
    rank.copies_out.pop_front();
  }
  // Waiting for compute implies waiting for everything that compute waited for.
  rank.submitted.join(rank.throttled);
  if (Stretch* const last = stretches_.last(rank.last_of_compute.thread))
    last->needed.join(rank.throttled);
}

// A slot is used anew as a whole, also where the unit that had it was smaller than the next one:
// compute may wait for every reduction but the last.
void NeededOrder::note_reduction(const Item& item, Rank& rank) {
  const std::pair group(item.thread, stretches_.group(item.thread));
  if (std::exchange(rank.last_reduction, group) != group) rank.reused.join(rank.reduced);
  rank.reduced = needed_[item.thread];
}

// Whether what is copied back for that layer may run beside nothing: no compute of its own pass is
// ahead of it, and the pass before was through the same piece.
bool NeededOrder::may_be_alone(int layer, const Rank& rank) const {
  const auto pieces = std::ssize(declared_.piece_of_layer);
  if (layer < 0 || layer >= pieces || !at(declared_.ends_a_piece, layer)) return false;
  const int before = rank.last_layer;
  return before < 0 || at(declared_.piece_of_layer, before) == at(declared_.piece_of_layer, layer);
}

void NeededOrder::note_compute(const Item& item, Rank& rank, const Clock& has) {
  rank.submitted.join(needed_[item.thread]);
  if (item.work.place.microbatch < 0) rank.outside_of_passes = rank.submitted;
  rank.last_of_compute.thread = item.thread;
  rank.last_of_compute.time = has.at(item.thread);
  const auto over = [&](const UnderWay& one) { return is_over(has, one.thread, one.time); };
  for (UnderWay& one : rank.back) {
    if (over(one) && !one.runs_beside && !may_be_alone(one.work.place.layer, rank)) {
      find(describe(one.work, "h2d") + " comes back beside nothing: " +
           describe(item.work, item.stream) + " waits for it, and is the next work of compute");
    }
    one.runs_beside = true;
  }
  if (item.work.place.layer >= 0) rank.last_layer = item.work.place.layer;
  for (auto* const list : {&rank.out, &rank.back, &rank.gathers}) std::erase_if(*list, over);
  const std::int64_t copies = std::ssize(rank.out);
  most_copies_ = std::max(most_copies_, copies);
  most_gathers_ = std::max<std::int64_t>(most_gathers_, std::ssize(rank.gathers));
  if (!declared_.max_inflight || declared_.captured_copies || copies <= *declared_.max_inflight)
    return;
  find(std::to_string(copies) + " groups of copies to the host may be under way beside " +
       describe(item.work, item.stream) + ", and offload.max_inflight allows " +
       std::to_string(*declared_.max_inflight));
}

// ---- Findings -----------------------------------------------------------------------------------

// The report of an order that nothing asks for: of the later stretch behind one of thread `more`.
std::string NeededOrder::unneeded(const Stretch& later, int more) const {
  const std::uint64_t time = later.has.at(more);
  const Stretch& earlier = stretches_.at(more, time);
  const Work& work = time < earlier.last ? earlier.begins_with : earlier.ends_with;
  const int rank = later.place.rank, other = earlier.place.rank;
  const auto of_rank = [&](int number) {
    return rank == other ? std::string() : " of rank " + std::to_string(number);
  };
  return describe(later.begins_with, later.stream) + of_rank(rank) + " is ordered after " +
         describe(work, earlier.stream) + of_rank(other) +
         ", which it does not need: no access, declared limit or peer asks for that order";
}

// The thread's last stretch is over. It may have waited for a peer's call whose group goes on, and
// what the rest of that group needs was waited for before its first call: so a doubt is resolved
// when all groups are whole.
void NeededOrder::judge(int thread) {
  Stretch* const later = stretches_.last(thread);
  if (later == nullptr) return;
  // A rank without rows of a unit has no update of it. Its gather forks from compute as others do.
  if (!later->gathers_own_update) {
    later->needed.join(later->forked);
    needed_[thread].join(later->forked);
  }
  if (later->needed.first_behind(later->has) < 0) return;
  later->doubted = later->needed;
  found_.push_back({.text = "", .thread = thread, .doubted = *later});
  later->needed.join(later->has);
  needed_[thread].join(later->has);
}

// Returns the needs of a stretch when the groups that it waits for, and those that they wait for,
// are whole. What a doubted stretch has beyond its needs is left out.
Clock NeededOrder::needed_with_whole_groups(const Found& one) const {
  Clock needed = one.doubted.needed;
  // Rows of experts are exchanged in the middle of a layer, behind a fork from its compute.
  if (one.doubted.stream == "expert rows")
    needed.join(stretches_.needed_by_compute(one.doubted.place));
  bool grows = true;
  while (grows) {
    grows = false;
    for (const auto& [thread, list] : stretches_.all()) {
      const std::uint64_t time = needed.at(thread);
      if (thread == one.thread || time == 0) continue;
      const Stretch& end = stretches_.waited_for(thread, time, one.doubted.ends_with);
      if (end.group < 0 && !end.doubted) continue;
      const Clock& more = end.doubted ? *end.doubted : end.needed;
      grows = grows || needed.first_behind(more) >= 0;
      needed.join(more);
    }
  }
  return needed;
}

void NeededOrder::find(const std::string& text) { found_.push_back({.text = text, .doubted = {}}); }

std::string NeededOrder::finding() {
  for (const auto& [thread, list] : stretches_.all()) judge(thread);
  std::string first;
  std::int64_t others = -1;
  for (const Found& one : found_) {
    std::string text = one.text;
    if (text.empty()) {
      const int more = needed_with_whole_groups(one).first_behind(one.doubted.has);
      if (more < 0) continue;
      text = unneeded(one.doubted, more);
    }
    if (++others == 0) first = text;
  }
  if (others < 1) return first;
  return first + " (and " + std::to_string(others) + (others == 1 ? " other)" : " others)");
}

}  // namespace lockstep
