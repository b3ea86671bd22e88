// Other values of what a shrunk scenario still says: those with which it fails as well may vary
// freely.
#include <algorithm>

#include "harness/shrink/rules.h"
#include "harness/shrink/shrink.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

class Variations {
 public:
  explicit Variations(const Scenario& scenario) : scenario_(scenario) {}

  template <class Edit>
  void add(const std::string& key, const std::string& value, const Edit& edit) {
    list.push_back({key, value, scenario_});
    edit(list.back().scenario);
  }
  void add_words(const std::string& key,
                 const std::vector<std::pair<std::string, std::function<void(Scenario&)>>>& to) {
    for (const auto& [value, edit] : to) add(key, value, edit);
  }

  std::vector<Variation> list;

 private:
  const Scenario& scenario_;
};

void vary_sizes(Variations& all, Scenario s) {
  const std::vector<std::string> idle = keys_without_effect(s);
  Scenario plain;
  for (const Size& size : sizes()) {
    if (std::find(idle.begin(), idle.end(), size.key) != idle.end()) continue;
    const std::int64_t value = size.at(s);
    std::vector<std::int64_t> tried{value};
    for (const std::int64_t other : {value - 1, value + 1, 2 * value + 1, size.at(plain)}) {
      if (other < size.least || std::find(tried.begin(), tried.end(), other) != tried.end())
        continue;
      tried.push_back(other);
      all.add(size.key, std::to_string(other), [&](Scenario& one) { size.at(one) = other; });
    }
  }
}

void vary_documents(Variations& all, const Scenario& s) {
  if (s.data.kind != DataKind::lengths) return;
  const auto each_list = [](auto edit) {
    return [edit](Scenario& one) {
      for (StepLengths& step : one.data.documents) {
        for (MicrobatchLengths& list : step) edit(list);
      }
      one.data.pack_length *= 4;
    };
  };
  all.add_words(
      "data.documents",
      {{"lengths + 1", each_list([](MicrobatchLengths& list) {
          for (std::int64_t& length : list) ++length;
        })},
       {"lengths x 2", each_list([](MicrobatchLengths& list) {
          for (std::int64_t& length : list) length *= 2;
        })},
       {"one more document of 3", each_list([](MicrobatchLengths& list) { list.push_back(3); })}});
}

void vary_model(Variations& all, const Scenario& s) {
  for (const std::string pattern : {"-", "*", "M", "*-", "M*-"}) {
    if (pattern != s.model.pattern) {
      all.add("model.pattern", "\"" + pattern + "\"",
              [&](Scenario& one) { one.model.pattern = pattern; });
    }
  }
  all.add("model.tied_embedding", s.model.tied_embedding ? "false" : "true",
          [](Scenario& one) { one.model.tied_embedding = !one.model.tied_embedding; });
  if (s.model.dropout.millionths > 0) {
    for (const std::int64_t tenths : {1, 5, 9}) {
      all.add("model.dropout", "0." + std::to_string(tenths),
              [&](Scenario& one) { one.model.dropout.millionths = tenths * 100'000; });
    }
  }
}

void vary_graphs(Variations& all, const Scenario& s) {
  const auto impl = [](GraphImpl value) {
    return [value](Scenario& one) {
      one.cuda_graph.impl = value;
      if (value == GraphImpl::none || one.training.steps > one.cuda_graph.warmup_steps) return;
      one.cuda_graph.warmup_steps = 0;
    };
  };
  for (const GraphImpl other : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    if (other != s.cuda_graph.impl) all.add("cuda_graph.impl", to_text(other), impl(other));
  }
  if (s.cuda_graph.impl == GraphImpl::none) return;
  for (const std::int64_t steps : {0, 1, 2}) {
    if (steps == s.cuda_graph.warmup_steps) continue;
    all.add("cuda_graph.warmup_steps", std::to_string(steps),
            [&](Scenario& one) { one.cuda_graph.warmup_steps = steps; });
  }
  for (const std::int64_t places : {1, 2, 8, 9}) {
    if (s.cuda_graph.max_packed_seqs == std::vector<std::int64_t>{places}) continue;
    all.add("cuda_graph.max_packed_seqs", std::to_string(places),
            [&](Scenario& one) { one.cuda_graph.max_packed_seqs = {places}; });
  }
}

void vary_seeds(Variations& all, const Scenario& s) {
  for (const std::int64_t seed : {1, 2, 3}) {
    if (seed != s.training.seed) {
      all.add("training.seed", std::to_string(seed),
              [&](Scenario& one) { one.training.seed = seed; });
    }
  }
  all.add("checker.schedule", "kind: program",
          [](Scenario& one) { one.checker.schedule.kind = ScheduleKind::program; });
}

}  // namespace

std::vector<Variation> variations(const Scenario& scenario) {
  Variations all(scenario);
  vary_documents(all, scenario);
  vary_model(all, scenario);
  vary_graphs(all, scenario);
  vary_sizes(all, scenario);
  vary_seeds(all, scenario);
  return std::move(all.list);
}

}  // namespace lockstep
