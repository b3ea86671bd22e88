#include "harness/wire/engine_server.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "engine/device/violation.h"
#include "harness/base/version.h"
#include "harness/wire/honoured_keys.h"
#include "harness/wire/observed_run.h"
#include "harness/wire/scenario_json.h"
#include "scenarios/io/reader.h"
#include "scenarios/schema/schema.h"
#include "scenarios/schema/words.h"

namespace lockstep::wire {
namespace {

constexpr std::int64_t kProtocol = 1;
constexpr int kMostRanks = 4;
constexpr int kOfAWholeStep = 2;  // Microbatches.
// For a rank to come to a collective; who judges has a deadline of his own.
constexpr double kMeetingSeconds = 60;
constexpr std::int64_t kMostSpin = 100'000;      // A delay's.
constexpr std::size_t kMostOfALine = 512 << 10;  // Half of what a line may have.

// ---- Scenarios ----------------------------------------------------------------------------------

// The documents come with the feed, so the scenario's own are one that is always legal, and no rule
// about what fits a graph has anything to look at.
ReadResult read_scenario(boost::json::object scenario) {
  const boost::json::object given = scenario.contains("data") && scenario["data"].is_object()
                                        ? scenario["data"].as_object()
                                        : boost::json::object();
  boost::json::object data{{"kind", "lengths"}, {"documents", {{{2}}}}};
  for (const char* key : {"pack_length", "tail", "align", "gaps"}) {
    if (given.contains(key)) data[key] = given.at(key);
  }
  scenario["data"] = data;
  scenario["expect"] = {{"counters", {{"graph_replays", 0}}}};
  scenario.erase("checker");
  return read_scenario_text(scenario_text(scenario), "request");
}

// One process is one rank. A graph of a whole step shows the tensors of those microbatches alone
// that are in flight at its end: an engine of whole steps has as many in flight as there are.
boost::json::object honours(const EngineOptions& options) {
  const bool whole_steps = options.whole_steps;
  boost::json::array attention{"native"};
  if (options.device == "sim") attention.emplace_back("cudnn");
  std::map<std::string, boost::json::value> parts{
      {"numerics", {"fp32", "bf16", "fp8"}},
      {"model.pattern", {{"symbols", "M*-E"}}},
      {"model.core_attention", attention},
      {"cuda_graph.impl", {"none", whole_steps ? "full_iteration" : "partial"}},
      {"parallel.data", {{"min", 1}, {"max", kMostRanks}}},
      {"parallel.context", {1}},
      {"parallel.tensor", {1}},
      {"parallel.expert", {1}},
      {"parallel.pipeline", {1}},
      {"parallel.chunks", {1}},
      {"fsdp.nccl_ub", {false}},
      {"fsdp.reduction", {"ordered"}},
  };
  if (whole_steps) parts["cuda_graph.modules"] = false;
  if (whole_steps && !options.steps_only) {
    parts["training.microbatches"] = parts["training.in_flight"] = {kOfAWholeStep};
    parts["training.change_microbatches_at"] = false;
  }
  boost::json::object honoured;
  for (const Key& key : schema()) {
    if (!is_for_engines(key.path)) continue;
    const auto part = parts.find(key.path);
    honoured[key.path] = part == parts.end() ? boost::json::value(true) : part->second;
  }
  for (const char* word :
       {"feed.empty_documents", "feed.empty_packs", "run.resume_at", "run.rollback_at"})
    honoured[word] = true;
  honoured["run.resume_on_other_ranks"] = options.thread_ranks;
  for (const char* word : {"feed.loss_scale", "feed.learning_rate"})
    honoured[word] = !options.own_scalars;
  return honoured;
}

const boost::json::object& as_scenario(const boost::json::object& request) {
  const boost::json::value* const scenario = request.if_contains("scenario");
  if (scenario == nullptr || !scenario->is_object()) throw WireError("no scenario");
  return scenario->as_object();
}

boost::json::array refusals(const ReadResult& read, int ranks, const EngineOptions& options) {
  boost::json::array list;
  for (const ScenarioError& error : read.errors)
    list.push_back({{"key", error.key}, {"why", error.text()}});
  const Scenario& s = read.scenario;
  const auto refuse = [&](const char* key, const char* why) {
    list.push_back({{"key", key}, {"why", why}});
  };
  if (!list.empty()) return list;
  if (s.numerics.size() != 1) refuse("numerics", "a run has one precision");
  if (s.parallel.data != ranks) refuse("parallel.data", "one process is one rank");
  const bool shows_all = options.whole_steps && s.training.in_flight == s.training.microbatches &&
                         s.training.change_microbatches_at.empty();
  if (s.cuda_graph.impl == GraphImpl::full_iteration && !shows_all && !options.steps_only)
    refuse("cuda_graph.impl", "a graph of a whole step does not show all tensors");
  if (s.model.core_attention != CoreAttention::native && options.device != "sim")
    refuse("model.core_attention", "only native");
  const bool other_ranks = std::ranges::any_of(
      s.training.resume_at,
      [&](const Scenario::Resume& one) { return one.data != 0 && one.data != s.parallel.data; });
  if (other_ranks && !options.thread_ranks)
    refuse("training.resume_at", "ranks that are processes do not change their number");
  return list;
}

// Kinds of a microbatch come first.
std::vector<std::string> kinds_of(const EngineOptions& options) {
  std::vector<std::string> kinds = observed_kinds();
  if (options.steps_only) kinds.erase(kinds.begin(), std::ranges::find(kinds, "loss"));
  return kinds;
}

std::optional<DelayStream> delay_stream(const std::string& name) {
  using enum DelayStream;
  for (const DelayStream one : {compute, d2h, h2d, gather, reduce, graph, loader}) {
    if (name == word(one)) return one;
  }
  return {};
}

// ---- Replies ------------------------------------------------------------------------------------

boost::json::object hello(const EngineOptions& options) {
  boost::json::object counts;
  for (const std::string& name : counted_names()) counts[name] = "said";
  return {{"protocol", kProtocol},
          {"engine", {{"name", "lockstep"}, {"version", version()}, {"revision", revision()}}},
          {"honours", honours(options)},
          {"claims",
           {{"deterministic", true},
            {"weights_by_name", true},
            {"padding_defined", true},
            {"padding_zero", true},
            {"loss_scaled", true},
            {"dropout_by_key", true},
            {"recompute_exact", true},
            {"row_invariant", {"fp32", "bf16", "fp8"}},
            {"counters_exact", boost::json::value_from(exact_counters())}}},
          {"amplifies", {"poison", "delay"}},
          {"observes", boost::json::value_from(kinds_of(options))},
          {"counts", std::move(counts)}};
}

std::set<std::string> texts(const boost::json::object& request, const char* name) {
  std::set<std::string> set;
  const boost::json::value* const list = request.if_contains(name);
  if (list == nullptr) return set;
  if (!list->is_array()) throw WireError(std::string(name) + " is no list");
  for (const boost::json::value& item : list->as_array()) {
    if (!item.is_string()) throw WireError(std::string(name) + " holds more than texts");
    set.emplace(item.as_string());
  }
  return set;
}

std::set<std::int64_t> numbers(const boost::json::object& request, const char* name) {
  std::set<std::int64_t> set;
  const boost::json::value* const list = request.if_contains(name);
  if (list == nullptr) return set;
  if (!list->is_array()) throw WireError(std::string(name) + " is no list");
  for (const boost::json::value& item : list->as_array()) {
    if (!item.is_int64()) throw WireError(std::string(name) + " holds more than integers");
    set.insert(item.as_int64());
  }
  return set;
}

std::int64_t number(const boost::json::object& request, const char* name, std::int64_t otherwise) {
  const boost::json::value* const value = request.if_contains(name);
  if (value == nullptr) return otherwise;
  if (!value->is_int64()) throw WireError(std::string(name) + " is no integer");
  return value->as_int64();
}

std::string text(const boost::json::object& request, const char* name) {
  const boost::json::value* const value = request.if_contains(name);
  if (value == nullptr || !value->is_string()) throw WireError(std::string("no ") + name);
  return std::string(value->as_string());
}

// Sends all but the last part of a long list ahead, because a line has a limit.
boost::json::array send_ahead(boost::json::array list, const char* name,
                              const EngineServer::Send& send) {
  boost::json::array part;
  std::size_t bytes = 0;
  for (boost::json::value& item : list) {
    const std::size_t size = boost::json::serialize(item).size() + 1;
    if (bytes + size > kMostOfALine) {
      send({{"more", true}, {name, std::exchange(part, {})}});
      bytes = 0;
    }
    bytes += size;
    part.push_back(std::move(item));
  }
  return part;
}

boost::json::object failed(const std::string& word, const std::string& what) {
  return {{"failed", word}, {"what", what}};
}

// Puts what a request asks for into the scenario, whose checker the engine's device follows.
void amplify(const boost::json::object& request, Scenario::Checker& checker) {
  const boost::json::value* const asked = request.if_contains("amplify");
  if (asked == nullptr) return;
  if (!asked->is_object()) throw WireError("amplify is no object");
  const boost::json::object& amplifiers = asked->as_object();
  if (const boost::json::value* const poison = amplifiers.if_contains("poison"))
    if (poison->is_bool() && poison->as_bool())
      checker.poison = {Poison::fresh, Poison::freed, Poison::padding, Poison::staging};
  const boost::json::value* const delays = amplifiers.if_contains("delay_us");
  if (delays == nullptr) return;
  if (!delays->is_object()) throw WireError("delay_us is no object");
  for (const boost::json::key_value_pair& item : delays->as_object()) {
    const std::optional<DelayStream> stream = delay_stream(std::string(item.key()));
    if (!item.value().is_int64()) throw WireError("delay_us holds more than integers");
    const std::int64_t spin = std::clamp<std::int64_t>(item.value().as_int64(), 1, kMostSpin);
    if (stream) checker.delays.push_back({.stream = *stream, .rank = {}, .spin = spin});
  }
}

// A trainer has no way to begin with other biases of experts than 0.
void require_no_biases(const Feed& feed) {
  for (const auto& [name, values] : feed.weights()) {
    const bool zero = std::ranges::all_of(values, [](float value) { return value == 0; });
    if (name.ends_with(".router.bias") && !zero)
      throw WireError(name + " is not 0, and this engine begins with no other bias");
  }
}

// A simulated device takes the work of its streams in any order that events allow: in one run all
// streams alike, in the next by priorities, so that one stream is far behind the others.
void vary_order(std::int64_t run, Scenario::Checker::Schedule& schedule) {
  schedule.kind = run % 2 == 0 ? ScheduleKind::random : ScheduleKind::pct;
  schedule.depth = 3;
}

}  // namespace

Store* EngineServer::meeting() {
  if (ranks_ == 1 || store_) return store_.get();
  const char* const port = std::getenv("MASTER_PORT");
  if (port == nullptr) throw WireError("MASTER_PORT is not set, and there are several ranks");
  const SharedPlace place = place_of_job(std::string("engine-") + port);
  if (rank_ == 0) segment_.emplace(SharedMemoryStore::create(place, ranks_));
  store_ = std::make_unique<SharedMemoryStore>(place, rank_, ranks_, kMeetingSeconds);
  folder_ = store_->all_gather_object({}, folder_).front();
  return store_.get();
}

boost::json::object EngineServer::run(const boost::json::object& request, const Send& send) {
  ReadResult read = read_scenario(as_scenario(request));
  if (const boost::json::array why = refusals(read, ranks_, options_); !why.empty())
    return {{"skipped", why.front().at("why").as_string()}};
  amplify(request, read.scenario.checker);
  vary_order(++runs_, read.scenario.checker.schedule);
  if (folder_.empty()) throw WireError("a run before hello");
  if (const std::string lack = options_.lack_of_memory(read.scenario); !lack.empty())
    return failed("memory", lack);
  const Feed feed(text(request, "feed"), read.scenario);
  require_no_biases(feed);
  Store* const store = options_.thread_ranks ? nullptr : meeting();
  const std::set<std::string> dump = texts(request, "tensors");
  const RunRequest asked{.scenario = read.scenario,
                         .feed = feed,
                         .observe = texts(request, "observe"),
                         .dump = dump,
                         .resume_at = numbers(request, "resume_at"),
                         .own_scalars = options_.own_scalars,
                         .rollback_at = numbers(request, "rollback_at"),
                         .folder = folder_,
                         .rank = rank_,
                         .ranks = ranks_,
                         .store = store,
                         .seed = runs_};
  RunAnswer answer = observe_run(asked, options_.device, options_.fault);
  boost::json::object reply;
  if (request.at("op") == "dump") {
    const std::string suffix = rank_ == 0 ? "" : "." + std::to_string(rank_);
    write_tensor_file(text(request, "to") + suffix, answer.dumped);
    reply["written"] = answer.dumped.size();
  }
  reply["rows"] = send_ahead(std::move(answer.rows), "rows", send);
  reply["tensors"] = send_ahead(std::move(answer.tensors), "tensors", send);
  reply["counters"] = std::move(answer.counters);
  reply["seconds"] = answer.seconds;
  return reply;
}

boost::json::object EngineServer::dispatch(const boost::json::object& request, const Send& send) {
  const std::string op = text(request, "op");
  if (op == "hello") {
    folder_ = text(request, "folder");
    rank_ = static_cast<int>(number(request, "rank", 0));
    ranks_ = static_cast<int>(number(request, "ranks", 1));
    boost::json::object reply = hello(options_);
    reply["device"] = {{"kind", options_.device}};
    return reply;
  }
  if (op == "check") {
    boost::json::array refused = refusals(read_scenario(as_scenario(request)), ranks_, options_);
    if (refused.empty()) return {{"ok", true}};
    return {{"refused", std::move(refused)}};
  }
  if (op == "run" || op == "dump") return run(request, send);
  if (op == "reset") return {{"ok", true}};
  if (op == "bye") {
    said_bye_ = true;
    return {{"ok", true}};
  }
  return {{"unsupported", op}};
}

boost::json::object EngineServer::answer(const boost::json::object& request, const Send& send) {
  const boost::json::value id = request.contains("id") ? request.at("id") : boost::json::value(0);
  const auto send_part = [&](boost::json::object part) {
    part["id"] = id;
    send(part);
  };
  boost::json::object reply;
  try {
    reply = dispatch(request, send_part);
  } catch (const WireError& error) {
    reply = failed("protocol", error.what());
  } catch (const EngineViolation& violation) {
    reply = failed(to_text(violation.judge()), violation.what());
  } catch (const std::bad_alloc&) {
    reply = failed("memory", "no memory for this run");
  } catch (const std::exception& error) {
    reply = failed("run", error.what());
  }
  reply["id"] = id;
  return reply;
}

}  // namespace lockstep::wire
