#include "harness/foreign/projection.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "harness/wire/honoured_keys.h"
#include "harness/wire/scenario_json.h"
#include "kernels/core/at.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/check.h"
#include "scenarios/schema/schema.h"
#include "scenarios/syntax/node.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

constexpr int kMostRepairs = 100;

json::value value_of(const Key& key, const Scenario& scenario) {
  return json::parse(key.write(scenario, Style::json));
}

// False where the text is no value of the key.
bool set_text(Scenario& scenario, const Key& key, const std::string& text) {
  Faults faults("projection");
  const std::optional<Node> node = parse_document(text, faults);
  if (!node || !faults.empty()) return false;
  key.read(Item{*node, key.path, faults}, scenario);
  return faults.empty();
}

// ---- Whether a value is honoured, and the nearest that is ---------------------------------------

bool is_number(const json::value& value) { return value.is_int64() || value.is_double(); }
double number_of(const json::value& value) { return value.to_number<double>(); }

// A number within `{"min", "max", "multiple_of"}`; at equal distance the lower.
json::value nearest_number(const json::value& value, const json::object& range) {
  double number = number_of(value);
  const double low = range.contains("min") ? number_of(range.at("min")) : -HUGE_VAL;
  const double high = range.contains("max") ? number_of(range.at("max")) : HUGE_VAL;
  number = std::clamp(number, low, std::max(low, high));
  if (range.contains("multiple_of")) {
    const double step = std::max(number_of(range.at("multiple_of")), 1.0);
    number = std::ceil(number / step - 0.5) * step;
    if (number < low) number += step;
    if (number > high) number -= step;
  }
  if (number == number_of(value)) return value;
  if (value.is_int64()) return static_cast<std::int64_t>(number);
  return number;
}

json::value nearest_pattern(const std::string& pattern, const json::object& form) {
  const std::string symbols(form.at("symbols").as_string());
  std::string kept;
  for (const char symbol : pattern) {
    if (symbols.find(symbol) != std::string::npos) kept += symbol;
  }
  if (kept.empty()) kept = symbols.substr(0, 1);
  if (form.contains("max")) {
    const auto most = static_cast<std::int64_t>(number_of(form.at("max")));
    kept = kept.substr(0, std::max<std::int64_t>(most, 1));
  }
  return json::string(kept);
}

json::value nearest_in_range(const json::value& value, const json::object& range) {
  if (is_number(value)) return nearest_number(value, range);
  if (!value.is_array())
    return value;  // A word, such as `unlimited`: only a list can leave it out.
  const auto items =
      static_cast<std::int64_t>(range.contains("items") ? number_of(range.at("items")) : 1);
  json::array kept;
  for (const json::value& item : value.as_array()) {
    json::value near = nearest_number(item, range);
    if (std::find(kept.begin(), kept.end(), near) == kept.end()) kept.push_back(std::move(near));
  }
  if (std::ssize(kept) > items) kept.resize(items);
  return kept;
}

json::value nearest_in_list(const json::value& value, const json::array& list,
                            const json::value& otherwise) {
  const auto has = [&](const json::value& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
  };
  if (value.is_array()) {
    json::array kept;
    for (const json::value& item : value.as_array()) {
      if (has(item)) kept.push_back(item);
    }
    const bool may_be_empty = otherwise.is_array() && otherwise.as_array().empty();
    if (kept.empty() && !may_be_empty && !list.empty()) kept.push_back(list.front());
    return kept;
  }
  if (has(value)) return value;
  const bool numbers =
      is_number(value) && !list.empty() &&
      std::all_of(list.begin(), list.end(), [](const auto& v) { return is_number(v); });
  if (numbers) {
    return *std::min_element(list.begin(), list.end(), [&](const auto& a, const auto& b) {
      const double x = std::abs(number_of(a) - number_of(value));
      const double y = std::abs(number_of(b) - number_of(value));
      return x < y || (x == y && number_of(a) < number_of(b));
    });
  }
  if (has(otherwise) || list.empty()) return otherwise;
  return list.front();
}

// `neutral`: the values of keys that are not honoured.
json::value nearest_honoured(const Key& key, const json::value& value, const json::object& honours,
                             const Scenario& neutral) {
  const json::value otherwise = value_of(key, neutral);
  const json::value* const form = honours.if_contains(key.path);
  if (form == nullptr) return otherwise;
  if (form->is_bool()) return form->as_bool() ? value : otherwise;
  if (form->is_array()) return nearest_in_list(value, form->as_array(), otherwise);
  if (!form->is_object()) return otherwise;
  const json::object& object = form->as_object();
  if (object.contains("symbols") && value.is_string())
    return nearest_pattern(std::string(value.as_string()), object);
  return nearest_in_range(value, object);
}

// ---- The scenario -------------------------------------------------------------------------------

class Projector {
 public:
  Projector(const Scenario& scenario, const json::object& honours)
      : scenario_(scenario), asked_(scenario), honours_(honours) {
    for (const Key& key : schema()) {
      if (key.counts(scenario_)) before_[key.path] = key.write(scenario_, Style::yaml);
    }
    scenario_.checker = {};
    scenario_.expect = {};
  }

  Projection run() {
    remove_empty_documents();
    project_all();
    std::set<std::string> seen;
    for (int i = 0; i < kMostRepairs; ++i) {
      // A repair that no engine's honours allow is undone by them, and comes again.
      if (!seen.insert(canonical_form(scenario_)).second && !leave_a_part_out()) break;
      std::vector<ScenarioError> errors = check_legality(scenario_);
      if (errors.empty()) errors = check_built(scenario_);
      if (errors.empty()) return not_honoured().empty() ? result() : refused_key(not_honoured());
      if (!repair(errors.front())) return refused(errors.front());
      remove_empty_documents();
      project_all();
    }
    return {.scenario = {},
            .changes = {},
            .why_not = "cannot be projected: what its rules ask for is not honoured"};
  }

 private:
  bool has_word(const char* word) const {
    const json::value* const value = honours_.if_contains(word);
    return value != nullptr && value->is_bool() && value->as_bool();
  }

  void remove_empty_documents() {
    if (!has_word("feed.empty_documents")) {
      scenario_.data.distribution.empty = {};
      for (StepLengths& step : scenario_.data.documents) {
        for (MicrobatchLengths& pack : step) std::erase(pack, 0);
      }
    }
    if (has_word("feed.empty_packs")) return;
    for (StepLengths& step : scenario_.data.documents) {
      for (MicrobatchLengths& pack : step) {
        const bool empty = std::all_of(pack.begin(), pack.end(), [](auto n) { return n == 0; });
        if (empty) pack.push_back(1);
      }
    }
  }

  void project_all() {
    for (const Key& key : schema()) {
      if (!key.counts(scenario_) || !wire::is_for_engines(key.path)) continue;
      const json::value value = value_of(key, scenario_);
      const json::value near = nearest_honoured(key, value, honours_, neutral());
      if (near != value) set_text(scenario_, key, wire::scenario_text(near));
    }
    if (has_word("run.resume_on_other_ranks")) return;
    for (Scenario::Resume& resume : scenario_.training.resume_at) resume.data = 0;
  }

  // The default of some keys follows from the length of a pack.
  Scenario neutral() const {
    Scenario one = neutral_scenario();
    one.data.pack_length = scenario_.data.pack_length;
    return one;
  }

  // The first key whose value no projection could make honoured; "" for none.
  std::string not_honoured() const {
    for (const Key& key : schema()) {
      if (!key.counts(scenario_) || !wire::is_for_engines(key.path)) continue;
      const json::value value = value_of(key, scenario_);
      if (nearest_honoured(key, value, honours_, neutral()) != value) return key.path;
    }
    return "";
  }

  // Offload, or graphs, or sharding: the first that is still there. False if none is.
  bool leave_a_part_out() {
    const Scenario::CudaGraph& graph = scenario_.cuda_graph;
    if (!scenario_.offload.modules.empty()) {
      scenario_.offload = neutral().offload;
    } else if (graph.impl != GraphImpl::none) {
      scenario_.cuda_graph = neutral().cuda_graph;
      scenario_.training.recapture_at.clear();
    } else if (scenario_.fsdp.strategy != Sharding::no_shard) {
      scenario_.fsdp = neutral().fsdp;
    } else {
      return false;
    }
    project_all();
    return true;
  }

  // The nearest legal value that the rule itself names.
  bool repair(const ScenarioError& error) {
    if (error.nearest.empty()) return false;
    int step = 0, pack = 0;
    char rest = 0;
    if (std::sscanf(error.key.c_str(), "data.documents[%d][%d]%c", &step, &pack, &rest) == 2)
      return repair_pack(step, pack, error.nearest);
    const Key* const key = find_key(error.key);
    return key != nullptr && set_text(scenario_, *key, error.nearest);
  }
  // `lengths`: "[4, 7, 5]".
  bool repair_pack(int step, int pack, const std::string& lengths) {
    boost::system::error_code unreadable;
    const json::value list = json::parse(lengths, unreadable);
    auto& steps = scenario_.data.documents;
    if (unreadable || !list.is_array() || step >= std::ssize(steps) ||
        pack >= std::ssize(at(steps, step)))
      return false;
    at(at(steps, step), pack) = json::value_to<MicrobatchLengths>(list);
    return true;
  }

  Projection result() const {
    Projection projection{.scenario = scenario_, .changes = {}, .why_not = ""};
    for (const Key& key : schema()) {
      if (key.path.starts_with("checker.") || key.path.starts_with("expect.")) continue;
      const auto from = before_.find(key.path);
      if (from == before_.end() || !key.counts(scenario_)) continue;
      const std::string to = key.write(scenario_, Style::yaml);
      if (to != from->second) projection.changes.push_back({key.path, from->second, to});
    }
    // What a file expects, it expects of the scenario as it stands.
    if (projection.changes.empty() && asked_.expect.verdict == ExpectedVerdict::holds)
      projection.scenario->expect = asked_.expect;
    return projection;
  }

  static Projection refused_key(const std::string& key) {
    return {.scenario = {}, .changes = {}, .why_not = "cannot be projected: no value of " + key};
  }
  static Projection refused(const ScenarioError& error) {
    return {.scenario = {}, .changes = {}, .why_not = "cannot be projected: " + error.text()};
  }

  Scenario scenario_;
  const Scenario& asked_;
  const json::object& honours_;
  std::map<std::string, std::string> before_;
};

}  // namespace

const Scenario& neutral_scenario() {
  static const Scenario scenario = [] {
    Scenario one;
    one.cuda_graph.impl = GraphImpl::none;
    one.training.in_flight = 1;
    one.training.optimizer.clip = 0;
    return one;
  }();
  return scenario;
}

Projection project(const Scenario& scenario, const json::object& honours) {
  return Projector(scenario, honours).run();
}

}  // namespace lockstep::foreign
