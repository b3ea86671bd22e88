// Scenarios whose values are in range, legal or not, for properties of reading and writing.
#pragma once

#include <rapidcheck.h>

#include <cmath>
#include <cstring>

#include "scenarios/pass_order.h"
#include "scenarios/schema/words.h"
#include "tests/scenarios/reading.h"

namespace lockstep {

// Writes the files that the kinds text and jsonl of random_scenario read.
inline void write_documents(const TemporaryFolder& folder) {
  folder.file("some texts/a", "abc");
  folder.file("records.jsonl", "{\"text\": \"abc\"}\n");
}

template <class Enum>
Enum any_word() {
  return static_cast<Enum>(*rc::gen::inRange<int>(0, static_cast<int>(words<Enum>().size())));
}

template <class Enum>
std::vector<Enum> any_set() {
  std::vector<Enum> set;
  for (std::size_t i = 0; i < words<Enum>().size(); ++i) {
    if (*rc::gen::arbitrary<bool>()) set.push_back(static_cast<Enum>(i));
  }
  return set;
}

inline std::int64_t any_int(std::int64_t low, std::int64_t high) {
  return *rc::gen::oneOf(rc::gen::just(low), rc::gen::just(high),
                         rc::gen::inRange<std::int64_t>(low, high));
}
inline Ratio any_ratio(std::int64_t low, std::int64_t high) { return {any_int(low, high)}; }

// Any double above 0 that a float can hold, small and large ones too.
inline double any_double() {
  const auto bits = *rc::gen::inRange<std::uint64_t>(1, 0x47ef'ffff'e000'0001);
  double value;
  static_assert(sizeof value == sizeof bits);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class Make>
auto any_list(int least, int most, Make make) {
  std::vector<decltype(make())> list(static_cast<std::size_t>(any_int(least, most)));
  for (auto& item : list) item = make();
  return list;
}

inline std::string any_text(int most) {
  static const std::vector<std::string> parts{
      "a", "Z", "0",    " ",    "\"",  "'", "\\", "#",        ": ",
      "*", "&", "!",    "<<",   "{",   "[", "]",  "}",        ",",
      "-", "%", "null", "true", "yes", "~", "\t", "\xc3\xa9", "\xf0\x9f\x98\x80",
      "|", ">", "?"};
  std::string text;
  for (const std::string& part : any_list(0, most, [] { return *rc::gen::elementOf(parts); })) {
    text += part;
  }
  return text;
}

inline void draw_model(Scenario::Model& model) {
  model.pattern =
      *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('M', '*', '-', 'E')));
  if (model.pattern.size() > 128) model.pattern.resize(128);
  model.hidden = any_int(1, 16384);
  model.vocab = any_int(2, 262144);
  model.tied_embedding = *rc::gen::arbitrary<bool>();
  model.norm_eps = any_double();
  model.attention.head_dim = 2 * any_int(1, 64);
  model.attention.rope_base = 1 + std::abs(any_double() / 2) + 1e-9;
  model.mlp.activation = any_word<MlpActivation>();
  model.moe.router = any_word<Router>();
  model.moe.pad_to_capacity = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) {
    model.moe.capacity_factor = any_ratio(1, 10'000'000);
  } else {
    model.moe.capacity_factor.reset();
  }
  model.dropout = any_ratio(0, 900'000);
  model.recompute = any_set<Recompute>();
  model.core_attention = any_word<CoreAttention>();
}

inline void draw_data(Scenario::Data& data) {
  data.kind = any_word<DataKind>();
  data.pack_length = any_int(1, 1000);
  if (data.kind == DataKind::lengths) {
    data.documents = any_list(1, 3, [] {
      return any_list(1, 3, [] { return any_list(0, 4, [] { return any_int(0, 2000); }); });
    });
  } else if (data.kind == DataKind::distribution) {
    data.distribution.shape = any_word<Shape>();
    data.distribution.max = any_int(0, data.pack_length);
    data.distribution.min = any_int(0, data.distribution.max);
    data.distribution.median = any_int(1, data.pack_length);
    data.distribution.sigma = any_ratio(0, 4'000'000);
    data.distribution.seed = any_int(0, 9007199254740991);
    if (data.distribution.shape == Shape::histogram) {
      std::int64_t documents = -1;
      data.distribution.histogram = any_list(1, 4, [&] {
        documents += any_int(1, 300);
        return std::vector<std::int64_t>{documents, any_int(1, 1000)};
      });
    }
  } else {
    data.path = data.kind == DataKind::text ? "some texts" : "records.jsonl";
    if (data.kind == DataKind::jsonl)
      data.mask.roles = any_list(0, 3, [] { return "r" + any_text(9); });
  }
  data.long_documents = any_word<LongDocuments>();
  data.mask.rate = any_ratio(0, 1'000'000);
  data.mask.microbatches = any_list(0, 3, [] { return any_int(0, 9); });
  data.tail = any_word<Tail>();
  data.align = any_int(1, 256);
}

inline void draw_training(Scenario::Training& training) {
  training.steps = any_int(1, 1000000);
  training.microbatches = any_int(1, 1024);
  training.in_flight = any_int(1, 16);
  training.optimizer.lr = any_double();
  training.optimizer.min_lr = training.optimizer.lr / 2;
  training.optimizer.schedule = any_word<LrSchedule>();
  training.optimizer.decay_steps = any_int(1, 1000000);
  training.optimizer.eps = any_double();
  training.eval_every = any_int(0, training.steps);
  training.recapture_at = any_list(0, 3, [] { return any_int(0, 99); });
  training.change_microbatches_at = any_list(0, 3, [] {
    return Scenario::MicrobatchChange{any_int(0, 99), any_int(1, 1024)};
  });
  training.resume_at = any_list(0, 3, [] {
    return Scenario::Resume{any_int(0, 99), any_int(0, 9), any_int(0, 8)};
  });
}

inline void draw_machinery(Scenario& scenario) {
  scenario.cuda_graph.impl = any_word<GraphImpl>();
  scenario.cuda_graph.modules = any_set<GraphModule>();
  scenario.cuda_graph.max_packed_seqs = any_list(1, 8, [] { return any_int(1, 65536); });
  if (*rc::gen::arbitrary<bool>())
    scenario.cuda_graph.max_seqlen = any_int(1, scenario.data.pack_length);
  scenario.cuda_graph.evaluation = any_word<GraphEvaluation>();
  scenario.cuda_graph.capture_passes = any_int(0, 3);
  scenario.cuda_graph.shared_memory = *rc::gen::arbitrary<bool>();
  scenario.offload.modules = any_set<OffloadModule>();
  scenario.offload.fraction = any_ratio(0, 1'000'000);
  if (*rc::gen::arbitrary<bool>()) scenario.offload.max_inflight = any_int(0, 1024);
  scenario.offload.captured = *rc::gen::arbitrary<bool>();
  scenario.offload.delta_bytes = any_int(0, std::int64_t{1} << 50);
  scenario.fsdp.strategy = any_word<Sharding>();
  scenario.fsdp.unit_is_list = *rc::gen::arbitrary<bool>();
  scenario.fsdp.unit =
      any_list(1, scenario.fsdp.unit_is_list ? 4 : 1, [] { return any_int(1, 128); });
  scenario.parallel.data = any_int(1, 64);
  scenario.parallel.transport = any_word<Transport>();
  scenario.parallel.pipeline = any_int(1, 64);
  scenario.parallel.chunks = any_int(1, 128);
  scenario.parallel.schedule = any_word<PipelineSchedule>();
  scenario.parallel.group = any_int(1, 1024);
  if (depth_follows(scenario)) scenario.training.in_flight = scheduled_depth(scenario);
}

inline void draw_judging(Scenario& scenario) {
  scenario.checker.poison = any_set<Poison>();
  scenario.checker.delays = any_list(0, 3, [] {
    Scenario::Delay delay{any_word<DelayStream>(), std::nullopt, any_int(1, 100000)};
    if (*rc::gen::arbitrary<bool>()) delay.rank = any_int(0, 63);
    return delay;
  });
  scenario.checker.schedule.kind = any_word<ScheduleKind>();
  scenario.expect.verdict = any_word<ExpectedVerdict>();
  scenario.expect.error = *rc::gen::elementOf(rule_names());
  for (const std::string& name : counter_names()) {
    const Counter counter = counter_from_text(name).value();
    const std::int64_t number = any_int(0, 1'000'000'000'000);
    Scenario::CounterRule& rule = scenario.expect.counters[counter];
    switch (any_int(0, 5)) {
      case 1:
        rule.min = rule.max = number;
        break;
      case 2:
        rule.min = number;
        break;
      case 3:
        rule.max = number;
        break;
      case 4:
        rule.same_as = counter_from_text(*rc::gen::elementOf(counter_names()));
        break;
      default:
        scenario.expect.counters.erase(counter);
    }
  }
}

inline rc::Gen<Scenario> random_scenario(const std::string& folder) {
  return rc::gen::exec([folder] {
    Scenario scenario;
    scenario.name = "a" + *rc::gen::container<std::string>(rc::gen::element('a', '0', '_', '-'));
    scenario.name.resize(std::min<std::size_t>(scenario.name.size(), 64));
    scenario.description = any_text(30);
    scenario.numerics = any_set<Numerics>();
    if (scenario.numerics.empty()) scenario.numerics = {Numerics::bf16};
    draw_model(scenario.model);
    draw_data(scenario.data);
    draw_training(scenario.training);
    draw_machinery(scenario);
    draw_judging(scenario);
    scenario.folder = folder;
    return scenario;
  });
}

// How RapidCheck prints a counterexample.
inline void showValue(const Scenario& scenario, std::ostream& out) { out << to_yaml(scenario); }

}  // namespace lockstep
