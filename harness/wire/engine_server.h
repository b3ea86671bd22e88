// lockstep's own engine behind the engine protocol: the answers of `lockstep engine`.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/rendezvous/shared_memory_store.h"
#include "scenarios/scenario.h"

namespace lockstep::wire {

struct EngineOptions {
  std::string device;        // sim or cuda.
  std::string fault;         // Planted at the device; "" for none.
  bool whole_steps = false;  // Graphs of whole steps instead of parts.
  bool steps_only = false;   // Observes what belongs to a step alone.
  bool own_scalars = false;  // Loss scales and learning rates of its own, not of the feed.
  // Each process runs all ranks, as threads, and answers for its own.
  bool thread_ranks = false;
  // Why the machine cannot hold a run of a scenario; "" if it can.
  std::function<std::string(const Scenario&)> lack_of_memory;
};

class EngineServer {
 public:
  // A line that is sent before the final reply.
  using Send = std::function<void(const boost::json::object&)>;

  explicit EngineServer(EngineOptions options) : options_(std::move(options)) {}

  // The final reply to one request. Never throws for what the request holds: that is a reply too.
  boost::json::object answer(const boost::json::object& request, const Send& send);
  bool said_bye() const { return said_bye_; }

 private:
  boost::json::object dispatch(const boost::json::object& request, const Send& send);
  boost::json::object run(const boost::json::object& request, const Send& send);
  // The first run of several ranks lets them meet.
  Store* meeting();

  EngineOptions options_;
  std::string folder_;  // This child's own; once the ranks have met, that of rank 0.
  int rank_ = 0, ranks_ = 1;
  std::optional<SharedSegment> segment_;  // Rank 0's, for all.
  std::unique_ptr<Store> store_;
  std::int64_t runs_ = 0;
  bool said_bye_ = false;
};

// Answers the requests from descriptor `in` on descriptor `out` until `bye` or the end of `in`.
// Throws WireError for a line that is too long or cannot be written. When the other side is gone
// during a request, the process ends at once.
void serve(EngineServer& server, int in, int out);

}  // namespace lockstep::wire
