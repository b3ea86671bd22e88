#include "harness/generate/likeness.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/generate/held.h"
#include "harness/generate/parts.h"
#include "scenarios/documents/layout.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

constexpr int kTries = 100;
constexpr std::uint64_t kFreedShare = 4;  // One key is drawn in one case of so many.

bool is_in(const std::string& key, const char* section) {
  return key.starts_with(std::string(section) + ".");
}

// The part of the generator behind which a key is held; absent for a key that is not of the run.
std::optional<Part> part_of(const std::string& key) {
  if (key == "schema" || key == "name" || is_in(key, "expect")) return {};
  if (key == "training.resume_at") return Part::resumes;
  if (key == "training.recapture_at" || is_in(key, "cuda_graph")) return Part::graphs;
  if (key == "model.recompute" || is_in(key, "offload")) return Part::offload;
  if (is_in(key, "training") || is_in(key, "parallel") || key == "fsdp.strategy")
    return Part::training;
  if (is_in(key, "fsdp")) return Part::sharding;
  if (is_in(key, "data")) return Part::data;
  if (is_in(key, "checker")) return Part::pressure;
  return Part::model;
}

// A key that is drawn instead of held; none in most cases.
std::set<std::string> with_one_freed(Choices& c, std::set<std::string> keys) {
  std::vector<std::string> of_the_run;
  for (const std::string& key : keys) {
    if (part_of(key)) of_the_run.push_back(key);
  }
  if (c.one_in(kFreedShare) && !of_the_run.empty()) keys.erase(c.pick(of_the_run));
  return keys;
}

// Fits what is drawn to the schedule of the file: microbatches in flight, and the group of chunks.
void fit_to_schedule(const std::set<std::string>& keys, Scenario& s) {
  const bool follows = pieces_of(s) > 1 || s.parallel.schedule == PipelineSchedule::gpipe;
  if (follows && !keys.contains("parallel.group"))
    s.parallel.group = std::max(s.parallel.group, s.parallel.pipeline);
  if (keys.contains("training.in_flight")) return;
  s.training.in_flight = follows ? scheduled_depth(s)
                                 : std::min(s.training.in_flight, fewest_microbatches(s.training));
}

bool is_legal(const Scenario& s, const std::set<std::string>& keys) {
  const bool captures =
      s.cuda_graph.impl == GraphImpl::none || s.cuda_graph.warmup_steps < s.training.steps;
  return captures && out_of_dependent_range(s, keys).empty() && check_legality(s).empty() &&
         check_built(s).empty();
}

// Large steps bring scores of a sigmoid router to +0, which have no weights. A learning rate of the
// file beside a weight decay that was drawn for another one lets weights grow in every step.
bool is_finite(const Scenario& s, const Scenario& of_file) {
  const auto decays_by = [](const Scenario& of) {
    return of.training.optimizer.lr * of.training.optimizer.weight_decay;
  };
  if (decays_by(s) > std::max(1.0, decays_by(of_file))) return false;
  return !has_experts(s.model) || s.model.moe.router != Router::sigmoid ||
         of_file.model.moe.router == Router::sigmoid || s.training.optimizer.lr <= 0.1;
}

}  // namespace

Likeness::Likeness(Scenario scenario, std::set<std::string> keys)
    : scenario_(std::move(scenario)), keys_(std::move(keys)) {
  const bool whole = keys_.contains("data.documents") || keys_.contains("data.kind") ||
                     keys_.contains("data.path");
  for (const Key& key : schema()) {
    if (whole && is_in(key.path, "data")) keys_.insert(key.path);
  }
  // How experts take their rows: few values of one fit any of another.
  const std::set<std::string> of_rows{"model.moe.capacity_factor", "model.moe.pad_to_capacity",
                                      "model.moe.host_sync"};
  const bool named =
      std::ranges::any_of(of_rows, [&](const std::string& key) { return keys_.contains(key); });
  if (named) keys_.insert(of_rows.begin(), of_rows.end());
  if (keys_.contains("cuda_graph.modules")) keys_.insert("cuda_graph.impl");
}

Likeness Likeness::of_file(const std::string& path) {
  const ReadResult read = read_scenario_file(path);
  if (!read.ok()) throw RequestError("refused\n" + text_of(read.errors));
  Scenario scenario = read.scenario;
  if (!read.data_digest.empty()) scenario.data.digest = read.data_digest;
  return {std::move(scenario), read.keys};
}

std::string Likeness::identity() const {
  std::string text = canonical_form(scenario_);
  for (const std::string& key : keys_) text += " " + key;
  return text;
}

Scenario Likeness::draw(Choices& choices, const Outside& outside) const {
  for (int left = kTries; left > 0; --left) {
    const std::set<std::string> held = with_one_freed(choices, keys_);
    const Numerics numerics = choices.pick(scenario_.numerics);
    const auto copy = [&](Part upto, Scenario& to) {
      for (const std::string& key : held) {
        const std::optional<Part> part = part_of(key);
        if (part && *part <= upto) find_key(key)->copy(scenario_, to);
      }
      if (upto >= Part::training) fit_to_schedule(held, to);
      if (to.parallel.pipeline > 1 && !held.contains("checker.delays")) free_ranks_of_delays(to);
      if (held.contains("numerics")) to.numerics = {numerics};
      to.folder = scenario_.folder;
    };
    Swarm swarm = draw_swarm(choices);
    swarm.constants = false;  // They are chosen for each other, which those of a file are not.
    if (held.contains("numerics")) {
      swarm.bf16 = numerics != Numerics::fp32;
      swarm.fp8 = numerics == Numerics::fp8;
    }
    swarm.sharding |= scenario_.parallel.data > 1 && held.contains("parallel.data");
    // Until there are documents, there is nothing that rules could be held against; and until
    // graphs are drawn, those of a new scenario are not the case's.
    const auto fits = [&](Part part, Scenario s) {
      if (part < Part::data) return true;
      if (part < Part::graphs) s.cuda_graph.impl = GraphImpl::none;
      return is_legal(s, held) && is_finite(s, scenario_) &&
             (part < Part::resumes || does_what_it_asks(s));
    };
    const std::optional<Scenario> drawn =
        generate_held(choices, swarm, outside, [&](Part part, Scenario& s) {
          copy(part, s);
          return fits(part, s);
        });
    if (drawn) return *drawn;
  }
  Scenario own = scenario_;
  own.expect = {};
  own.numerics = {choices.pick(scenario_.numerics)};
  if (!keys_.contains("checker.schedule.seed"))
    own.checker.schedule.seed = choices.between(0, 1000);
  return own;
}

}  // namespace lockstep
