#include "harness/foreign/coverage.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/foreign/projection.h"
#include "scenarios/schema/schema.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

// The choice of the next case looks at each refused one.
constexpr std::size_t kRefusedKept = 64;
constexpr double kOfARefusal = 0.25;  // A refusal costs next to nothing, a judged case many runs.

json::value value_of(const std::string& key, const Scenario& scenario) {
  return json::parse(find_key(key)->write(scenario, Style::json));
}

bool holds_value(const json::value& whole, const json::value& part) {
  if (const json::array* const list = whole.if_array())
    return std::find(list->begin(), list->end(), part) != list->end();
  return whole == part;
}

std::string plain(const json::value& value) {
  return value.is_string() ? std::string(value.as_string()) : json::serialize(value);
}

bool is_one_number(const json::object& range) {
  return range.contains("min") && range.contains("max") && range.at("min") == range.at("max");
}

}  // namespace

Coverage::Coverage(const json::object& honours) {
  for (const Key& key : schema()) {
    const json::value* const form = honours.if_contains(key.path);
    if (form == nullptr) continue;
    if (const json::array* const list = form->if_array()) {
      for (const json::value& value : *list) add_feature(key.path, value);
    } else if (const json::object* const object = form->if_object()) {
      if (object->contains("symbols")) {
        for (const char symbol : object->at("symbols").as_string())
          add_feature(key.path, json::string(1, symbol));
      } else if (!is_one_number(*object)) {
        features_.push_back({key.path, key.path});
      }
    } else if (form->is_bool() && form->as_bool()) {
      features_.push_back({key.path, key.path});
    }
  }
  counts_.resize(features_.size() * features_.size());
  times_refused_.resize(features_.size());
}

void Coverage::add_feature(const std::string& key, const json::value& value) {
  const bool symbol = key == "model.pattern";
  if (!symbol && holds_value(value_of(key, neutral_scenario()), value)) return;
  features_.push_back({key, key + (symbol ? " with " : ": ") + plain(value), value});
}

bool Coverage::has(const Feature& feature, const Scenario& scenario) const {
  const json::value value = value_of(feature.key, scenario);
  if (feature.value.is_null()) return value != value_of(feature.key, neutral_scenario());
  if (feature.key == "model.pattern")
    return value.as_string().find(feature.value.as_string()) != std::string::npos;
  return holds_value(value, feature.value);
}

std::vector<std::size_t> Coverage::features_of(const Scenario& scenario) const {
  std::vector<std::size_t> here;
  for (std::size_t i = 0; i < features_.size(); ++i) {
    if (has(features_[i], scenario)) here.push_back(i);
  }
  return here;
}

void Coverage::add(const std::vector<std::size_t>& features) {
  ++cases_;
  for (const std::size_t a : features) {
    for (const std::size_t b : features) ++counts_[a * features_.size() + b];
  }
}

void Coverage::add_refused(const std::vector<std::size_t>& features) {
  for (const std::size_t feature : features) ++times_refused_[feature];
  refused_.push_back(features);
  if (refused_.size() > kRefusedKept) refused_.erase(refused_.begin());
}

double Coverage::rarity_of(const std::vector<std::size_t>& features) const {
  double sum = 0;
  for (std::size_t i = 0; i < features.size(); ++i) {
    for (std::size_t j = i; j < features.size(); ++j)
      sum += 1 / std::pow(1 + count(features[i], features[j]), 2);
  }
  return sum * std::pow(1 - likeness_to_refused(features), 2);
}

std::vector<std::size_t> Coverage::seldomest_first() const {
  std::vector<double> tried(features_.size());
  for (std::size_t i = 0; i < tried.size(); ++i)
    tried[i] =
        static_cast<double>(count(i, i)) + kOfARefusal * static_cast<double>(times_refused_[i]);
  std::vector<std::size_t> order(tried.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tried[a] < tried[b]; });
  return order;
}

double Coverage::likeness_to_refused(const std::vector<std::size_t>& features) const {
  std::vector<bool> has(features_.size());
  for (const std::size_t feature : features) has[feature] = true;
  double most = 0;
  for (const std::vector<std::size_t>& refused : refused_) {
    double shared = 0, suspects = 0;
    for (std::size_t i = 0; i < refused.size(); ++i) {
      for (std::size_t j = i; j < refused.size(); ++j) {
        if (count(refused[i], refused[j]) > 0) continue;
        ++suspects;
        shared += has[refused[i]] && has[refused[j]];
      }
    }
    if (suspects > 0) most = std::max(most, shared / suspects);
  }
  return most;
}

std::string Coverage::text() const {
  const std::size_t count = features_.size();
  std::size_t met = 0, pairs = 0;
  std::string never;
  for (std::size_t a = 0; a < count; ++a) {
    met += this->count(a, a) > 0;
    if (this->count(a, a) == 0) never += "  never met: " + features_[a].name + "\n";
    for (std::size_t b = a + 1; b < count; ++b) pairs += this->count(a, b) > 0;
  }
  return "features that the engine announces: " + std::to_string(met) + " of " +
         std::to_string(count) + " met, " + std::to_string(pairs) + " of " +
         std::to_string(count * (count - std::min<std::size_t>(count, 1)) / 2) + " pairs\n" + never;
}

json::object Coverage::to_json() const {
  json::object features;
  json::array never;
  for (std::size_t a = 0; a < features_.size(); ++a) {
    features[features_[a].name] = count(a, a);
    for (std::size_t b = a + 1; b < features_.size(); ++b) {
      if (count(a, b) == 0)
        never.push_back({json::string(features_[a].name), json::string(features_[b].name)});
    }
  }
  return {
      {"cases", cases_}, {"features", std::move(features)}, {"pairs_never_met", std::move(never)}};
}

}  // namespace lockstep::foreign
