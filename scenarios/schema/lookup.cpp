// Lookups in the table of keys: sections, names, and the defaults and ranges that depend on other
// keys.
#include <algorithm>
#include <map>

#include "scenarios/documents/layout.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

using Sections = std::map<std::string, std::vector<std::string>>;

const Sections& sections() {
  static const Sections made = [] {
    Sections list;
    for (const Key& key : schema()) {
      std::string section;
      for (std::size_t begin = 0, end; begin < key.path.size(); begin = end + 1) {
        end = std::min(key.path.find('.', begin), key.path.size());
        const std::string name = key.path.substr(begin, end - begin);
        std::vector<std::string>& names = list[section];
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
        section = key.path.substr(0, end);
      }
    }
    return list;
  }();
  return made;
}

}  // namespace

const Key* find_key(const std::string& path) {
  static const std::map<std::string, const Key*> by_path = [] {
    std::map<std::string, const Key*> map;
    for (const Key& key : schema()) map[key.path] = &key;
    return map;
  }();
  const auto found = by_path.find(path);
  return found == by_path.end() ? nullptr : found->second;
}

bool is_section(const std::string& path) { return sections().count(path) != 0; }

const std::vector<std::string>& names_in(const std::string& section) {
  return sections().at(section);
}

const std::vector<std::string>& computed_keys() {
  static const std::vector<std::string> keys{"model.vocab",
                                             "model.moe.pad_to_capacity",
                                             "data.long_documents",
                                             "data.distribution.max",
                                             "data.distribution.median",
                                             "training.in_flight",
                                             "training.optimizer.decay_steps",
                                             "cuda_graph.max_seqlen",
                                             "parallel.group",
                                             "fp8.save_original_input",
                                             "fp8.weight_cache"};
  return keys;
}

void fill_defaults(Scenario& scenario, const std::set<std::string>& given) {
  const Scenario plain;
  const auto computes = [&](const char* key) { return given.count(key) == 0; };
  Scenario::Data& data = scenario.data;
  if (computes("model.vocab")) scenario.model.vocab = reads_bytes(data) ? 256 : plain.model.vocab;
  if (computes("model.moe.pad_to_capacity")) {
    scenario.model.moe.pad_to_capacity = scenario.model.moe.capacity_factor.has_value();
  }
  if (computes("data.long_documents")) {
    data.long_documents = reads_bytes(data) ? LongDocuments::split : plain.data.long_documents;
  }
  if (computes("data.distribution.max")) {
    const Shape shape = data.distribution.shape;
    const bool fills = shape == Shape::published || shape == Shape::histogram;
    data.distribution.max = fills ? data.pack_length : plain.data.distribution.max;
  }
  // Only lognormal reads the median, so elsewhere its default may not refuse a short pack.
  if (computes("data.distribution.median")) {
    const bool is_read =
        data.kind == DataKind::distribution && data.distribution.shape == Shape::lognormal;
    const std::int64_t median = plain.data.distribution.median;
    data.distribution.median = is_read ? median : std::min(median, data.pack_length);
  }
  if (computes("parallel.group")) scenario.parallel.group = scenario.parallel.pipeline;
  if (computes("training.in_flight")) {
    scenario.training.in_flight =
        depth_follows(scenario)
            ? scheduled_depth(scenario)
            : std::min(plain.training.in_flight, fewest_microbatches(scenario.training));
  }
  if (computes("training.optimizer.decay_steps"))
    scenario.training.optimizer.decay_steps = scenario.training.steps;
  if (computes("cuda_graph.max_seqlen")) scenario.cuda_graph.max_seqlen.reset();
  if (computes("fp8.save_original_input"))
    scenario.fp8.save_original_input = implied_original_inputs(scenario.model);
  if (computes("fp8.weight_cache")) scenario.fp8.weight_cache = default_weight_cache(scenario);
}

std::vector<DependentRange> out_of_dependent_range(const Scenario& scenario,
                                                   const std::set<std::string>& given) {
  std::vector<DependentRange> list;
  const auto check = [&](const std::string& key, auto value, auto low, auto high, auto write) {
    const bool is_read =
        key.rfind("data.distribution.", 0) != 0 || scenario.data.kind == DataKind::distribution;
    if ((value >= low && value <= high) || (given.count(key) == 0 && !is_read)) return;
    list.push_back({key, write(low) + ".." + write(high), write(value < low ? low : high)});
  };
  const auto integer = [](std::int64_t value) { return std::to_string(value); };
  const Scenario::Data& data = scenario.data;
  const std::int64_t zero = 0, one = 1;
  check("data.distribution.min", data.distribution.min, zero, data.pack_length, integer);
  check("data.distribution.max", data.distribution.max,
        std::min(data.distribution.min, data.pack_length), data.pack_length, integer);
  check("data.distribution.median", data.distribution.median, one, data.pack_length, integer);
  const Scenario::Training& training = scenario.training;
  check("training.optimizer.min_lr", training.optimizer.min_lr, 0.0, training.optimizer.lr,
        write_number);
  check("training.optimizer.lr_warmup", training.optimizer.lr_warmup, zero, training.steps,
        integer);
  check("training.eval_every", training.eval_every, zero, training.steps, integer);
  check("cuda_graph.max_seqlen", longest_captured(scenario), one, data.pack_length, integer);
  return list;
}

}  // namespace lockstep
