// One run of lockstep's own engine on a feed, observed as docs/engine-protocol.md, section 8, says.
#pragma once

#include <boost/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/rendezvous/store.h"
#include "harness/wire/feed.h"
#include "harness/wire/tensor_file.h"
#include "scenarios/scenario.h"

namespace lockstep::wire {

struct RunRequest {
  const Scenario& scenario;  // One precision, no graph of a whole step.
  const Feed& feed;
  std::set<std::string> observe;          // Kinds.
  std::set<std::string> dump;             // Keys of tensors whose values are wanted.
  std::set<std::int64_t> resume_at = {};  // Steps before which the run is saved and goes on anew.
  bool own_scalars = false;  // The scenario's own schedule and normaliser, not the feed's numbers.
  // Steps before which the state is saved; when that step and a part of the next are done, it is
  // loaded again.
  std::set<std::int64_t> rollback_at = {};
  std::string folder = {};           // For the files of a resume; equal on all ranks.
  std::int64_t rank = 0, ranks = 1;  // The rank that this process answers for.
  // Where several ranks meet that are processes; null for one rank, and where this process runs all
  // ranks as threads.
  Store* store = nullptr;
  // Draws the order of work of the simulated device: another for equal requests, as on a GPU:
  // no bit may depend on them.
  std::int64_t seed = 1;
};

struct RunAnswer {
  boost::json::array rows, tensors;  // In program order.
  boost::json::object counters;
  std::vector<std::pair<std::string, TypedTensor>> dumped;  // By key.
  double seconds = 0;
};

// The kinds that it can observe, and the counters that it counts.
const std::vector<std::string>& observed_kinds();
const std::vector<std::string>& counted_names();
// The counters whose values are what `lockstep describe` prints for the scenario.
const std::vector<std::string>& exact_counters();

// `device`: sim or cuda. `fault`: planted at the device, "" for none. What the trainer throws
// passes.
RunAnswer observe_run(const RunRequest& request, const std::string& device,
                      const std::string& fault);

}  // namespace lockstep::wire
