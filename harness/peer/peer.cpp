#include "harness/peer/peer.h"

#include <algorithm>
#include <memory>

#include "engine/train/trainer.h"
#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/shell_word.h"
#include "harness/base/stopwatch.h"
#include "harness/bench/median.h"
#include "harness/bench/steps.h"
#include "harness/case/schedules.h"
#include "harness/foreign/engine_failure.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "scenarios/documents/documents.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

namespace json = boost::json;

constexpr double kBeginSeconds =
    540;  // It compiles its kernels and chooses among launches by time.
constexpr double kTurnSeconds = 120;
constexpr int kAskEveryMs = 100;
// Steps of a turn. The first one, behind the other side's work, is not counted.
constexpr int kTurn = 3;
constexpr int kFewestRounds = 5;
constexpr int kMostRounds = 40;

std::string command_of(const std::string& python) {
  return "env PYTHONPATH=" + shell_word(adapters_folder()) + "${PYTHONPATH:+:$PYTHONPATH} " +
         shell_word(python) + " -m lockstep_adapter.torch_step";
}

json::array to_json(const LengthsOfSteps& steps) { return json::value_from(steps).as_array(); }

json::object model_of(const Scenario& scenario) {
  const Scenario::Model& m = scenario.model;
  return {{"pattern", m.pattern},
          {"hidden", m.hidden},
          {"vocab", m.vocab},
          {"tied_embedding", m.tied_embedding},
          {"norm_eps", m.norm_eps},
          {"dropout", m.dropout.value()},
          {"attention",
           {{"heads", m.attention.heads},
            {"kv_heads", m.attention.kv_heads},
            {"head_dim", m.attention.head_dim},
            {"rope_base", m.attention.rope_base}}},
          {"mamba",
           {{"d_inner", m.mamba.d_inner},
            {"head_dim", m.mamba.head_dim},
            {"groups", m.mamba.groups},
            {"state", m.mamba.state},
            {"conv_width", m.mamba.conv_width},
            {"chunk", m.mamba.chunk}}},
          {"mlp",
           {{"hidden", m.mlp.hidden},
            {"activation",
             m.mlp.activation == MlpActivation::squared_relu ? "squared_relu" : "swiglu"}}}};
}

json::object optimizer_of(const Scenario& scenario) {
  const Scenario::Training::Optimizer& o = scenario.training.optimizer;
  return {{"lr", o.lr},       {"weight_decay", o.weight_decay},
          {"beta1", o.beta1}, {"beta2", o.beta2},
          {"eps", o.eps},     {"clip", o.clip}};
}

// A run of this process that takes a step when asked.
class OwnSteps {
 public:
  OwnSteps(const Scenario& scenario, const std::string& device_kind)
      : device_(open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed))),
        data_(open_data(scenario)),
        trainer_(device_, scenario, *data_, {.dry_run_ledger = false}) {}
  double seconds() {
    const Stopwatch watch;
    trainer_.step();
    return watch.seconds();
  }
  std::int64_t bytes() { return static_cast<std::int64_t>(device_.backend().memory_high_water()); }

 private:
  Device device_;
  std::unique_ptr<DataSource> data_;
  Trainer trainer_;
};

struct Contender {
  PeerRow row;
  std::unique_ptr<OwnSteps> own;  // Null for PyTorch's.
};

Contender own_contender(const Scenario& scenario, GraphImpl impl, const std::string& device_kind) {
  Contender one;
  one.row.side = kOwnSide;
  one.row.mode = mode_name(impl);
  const Scenario s = with_graph_impl(scenario, impl);
  one.row.not_run = why_not(s);
  if (one.row.not_run.empty()) one.own = std::make_unique<OwnSteps>(s, device_kind);
  return one;
}

}  // namespace

Peer::Peer(const std::string& python, const Scenario& scenario, const LengthsOfSteps& all)
    : process_(command_of(python), {.called = "PyTorch's process"}) {
  const json::object reply = ask({{"op", "begin"},
                                  {"model", model_of(scenario)},
                                  {"rows", scenario.data.pack_length},
                                  {"optimizer", optimizer_of(scenario)},
                                  {"packs", to_json(all)}},
                                 kBeginSeconds);
  device_ = reply.at("device").as_string();
  version_ = reply.at("torch").as_string();
  for (const json::value& value : reply.at("modes").as_array()) {
    const json::object& one = value.as_object();
    const json::value* const why = one.if_contains("not_run");
    modes_.push_back({.name = std::string(one.at("mode").as_string()),
                      .bytes = one.at("bytes").as_int64(),
                      .not_run = why ? std::string(why->as_string()) : ""});
  }
}

json::object Peer::ask(json::object request, double patience) {
  try {
    process_.ask(std::move(request));
    for (const Stopwatch watch; !process_.reply();) {
      if (Interrupts::came()) throw Interrupted("interrupted by " + Interrupts::name());
      if (watch.seconds() > patience)
        throw WorldError("--peer: " + process_.told("did not answer in time"));
      auto ready = process_.descriptors();
      if (::poll(ready.data(), ready.size(), kAskEveryMs) > 0) process_.serve(ready);
    }
  } catch (const foreign::EngineFailure& failure) {
    throw WorldError("--peer: " + std::string(failure.what()));
  }
  const json::object& reply = *process_.reply();
  if (const json::value* const why = reply.if_contains("failed"))
    throw WorldError("--peer: " + process_.told("failed: " + std::string(why->as_string())));
  return reply;
}

std::vector<double> Peer::seconds(const std::string& mode, const LengthsOfSteps& steps) {
  const json::object reply =
      ask({{"op", "steps"}, {"mode", mode}, {"packs", to_json(steps)}}, kTurnSeconds);
  auto seconds = json::value_to<std::vector<double>>(reply.at("seconds"));
  if (seconds.size() != steps.size())
    throw WorldError("--peer: PyTorch timed " + std::to_string(seconds.size()) + " of " +
                     std::to_string(steps.size()) + " steps");
  return seconds;
}

double fastest_median(const PeerTimes& times, const std::string& side,
                      const std::function<bool(const std::string&)>& counts) {
  double fastest = 0;
  for (const PeerRow& row : times.rows) {
    if (row.side != side || row.times.empty() || !counts(row.mode)) continue;
    const double own = median(row.times);
    fastest = fastest == 0 ? own : std::min(fastest, own);
  }
  return fastest;
}

PeerTimes time_beside_peer(const Scenario& scenario, const std::string& device_kind,
                           const std::string& python, double budget) {
  const auto data = open_data(scenario);
  const std::int64_t warm = scenario.cuda_graph.warmup_steps + 3;
  LengthsOfSteps packs;
  for (std::int64_t i = 0; i < warm + kMostRounds * kTurn; ++i)
    packs.push_back(lengths_of(data->training(i)));
  // PyTorch first: a machine without it is told so at once.
  Peer peer(python, scenario, packs);
  if ((peer.device() == "cpu") != (device_kind == "sim"))
    throw WorldError("--peer: PyTorch computes on " + peer.device() + ", lockstep on " +
                     device_kind);
  std::vector<Contender> all;
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration})
    all.push_back(own_contender(scenario, impl, device_kind));
  for (const Peer::Mode& mode : peer.modes()) {
    Contender one;
    one.row = {kPeerSide, mode.name, mode.not_run, mode.bytes, {}};
    all.push_back(std::move(one));
  }
  for (Contender& one : all) {
    for (std::int64_t i = 0; one.own && i < warm; ++i) one.own->seconds();
  }
  const auto turn = [&](Contender& one, int round) {
    if (!one.row.not_run.empty()) return;
    const auto first = packs.begin() + warm + std::ptrdiff_t{round} * kTurn;
    std::vector<double> times;
    if (one.own) {
      for (int i = 0; i < kTurn; ++i) times.push_back(one.own->seconds());
    } else {
      times = peer.seconds(one.row.mode, {first, first + kTurn});
    }
    one.row.times.insert(one.row.times.end(), times.begin() + 1, times.end());
  };
  const Stopwatch watch;
  for (int round = 0;
       round < kMostRounds &&
       (round < kFewestRounds || watch.seconds() < budget * static_cast<double>(all.size()));
       ++round) {
    if (round % 2 == 1) std::reverse(all.begin(), all.end());
    for (Contender& one : all) turn(one, round);
    if (round % 2 == 1) std::reverse(all.begin(), all.end());
  }
  PeerTimes times{.rows = {}, .device = peer.device(), .version = peer.version()};
  for (Contender& one : all) {
    if (one.own) one.row.bytes = one.own->bytes();
    times.rows.push_back(std::move(one.row));
  }
  return times;
}

}  // namespace lockstep
