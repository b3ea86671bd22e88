#include "harness/foreign/coverage.h"

#include <algorithm>
#include <cmath>

#include "harness/foreign/projection.h"
#include "scenarios/schema/schema.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

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
  refused_.resize(counts_.size());
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
  add_pairs(features, counts_);
}

void Coverage::add_refused(const std::vector<std::size_t>& features) {
  add_pairs(features, refused_);
}

void Coverage::add_pairs(const std::vector<std::size_t>& features,
                         std::vector<std::int64_t>& counts) const {
  for (const std::size_t a : features) {
    for (const std::size_t b : features) ++counts[a * features_.size() + b];
  }
}

double Coverage::rarity_of(const std::vector<std::size_t>& features) const {
  double sum = 0;
  std::int64_t refusals = 0;  // The pair refused most often is the likeliest reason.
  for (std::size_t i = 0; i < features.size(); ++i) {
    for (std::size_t j = i; j < features.size(); ++j) {
      const std::int64_t met = count(features[i], features[j]);
      sum += 1 / std::pow(1 + met, 2);
      if (met == 0)
        refusals = std::max(refusals, refused_[features[i] * features_.size() + features[j]]);
    }
  }
  return sum / std::pow(1 + refusals, 2);
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
