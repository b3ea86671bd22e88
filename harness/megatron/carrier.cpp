#include "harness/megatron/carrier.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "harness/base/errors.h"
#include "harness/run/refusal.h"
#include "scenarios/io/reader.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

constexpr int kMostRepairs = 64;

// Sections as nested mappings. The keys are sorted, so those of one section lie together.
std::string yaml_of(const std::map<std::string, std::string>& values) {
  std::string text = "schema: 1\n";
  std::vector<std::string> open;
  for (const auto& [key, value] : values) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= key.size();) {
      const std::size_t end = std::min(key.find('.', at), key.size());
      parts.push_back(key.substr(at, end - at));
      at = end + 1;
    }
    std::size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same]) ++same;
    open.resize(same);
    for (; same + 1 < parts.size(); ++same) {
      text += std::string(2 * same, ' ') + parts[same] + ":\n";
      open.push_back(parts[same]);
    }
    text += std::string(2 * (parts.size() - 1), ' ') + parts.back() + ": " + value + "\n";
  }
  return text;
}

}  // namespace

std::string yaml_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return "[" + text + "]";
}

std::string yaml_number(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : "0";
}

std::string yaml_ratio(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.6f", std::min(value, 1e6));
  std::string digits = text;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

std::vector<FromMegatron::Left>& FromMegatron::list(WithoutKey which) {
  return which == WithoutKey::arithmetic  ? arithmetic
         : which == WithoutKey::machinery ? machinery
                                          : no_effect;
}

bool Carrier::meets(When when) const {
  switch (when) {
    case When::always:
      return true;
    case When::attention:
      return has_symbol('*');
    case When::mamba:
      return has_symbol('M');
    case When::mlp:
      return has_symbol('-');
    case When::experts:
      return has_symbol('E');
    case When::graphs:
      return graphs_;
    case When::offload:
      return offload_;
    case When::sharding:
      return sharding_;
    case When::bf16:
      return bf16_;
  }
  return true;
}

std::int64_t Carrier::sized(std::int64_t given, std::int64_t small_one) const {
  return small() ? std::min(given, small_one) : given;
}

std::int64_t Carrier::required(const std::string& field) const {
  const std::optional<std::int64_t> value = request_.integer(field);
  if (!value || *value < 1) request_.fail(field, "is missing: no model without it");
  return *value;
}

void Carrier::set(const std::string& key, const std::string& value, const std::string& field) {
  values_[key] = value;
  if (field.empty()) return;
  use(field);
  result_.carried.push_back(field + " -> " + key);
}

void Carrier::leave(WithoutKey which, const std::string& field, const std::string& why) {
  use(field);
  std::string value = request_.text(field).value_or("None");
  const std::vector<std::string> items = request_.list(field);
  if (items.size() > 1) value = yaml_list(items);
  result_.list(which).push_back({field, value, why});
}

void Carrier::plain() {
  for (const PlainKey& row : plain_keys()) {
    if (!meets(row.when)) continue;
    if (row.as == PlainKey::As::flag) {
      set(row.key, request_.flag(row.field) ? "true" : "false", row.field);
    } else if (const std::optional<double> value = request_.number(row.field)) {
      const bool whole = row.as == PlainKey::As::integer;
      set(row.key,
          whole                           ? std::to_string(*request_.integer(row.field))
          : row.as == PlainKey::As::ratio ? yaml_ratio(*value)
                                          : yaml_number(*value),
          row.field);
    }
  }
}

void Carrier::fixed() {
  for (const FixedField& row : fixed_fields()) {
    use(row.field);
    if (!meets(row.when)) continue;
    const std::string value = request_.text(row.field).value_or("None");
    const bool zero = std::string(row.value) == "0" || std::string(row.value) == "1";
    const bool same =
        zero ? request_.number(row.field).value_or(0) == (row.value[0] - '0') : value == row.value;
    if (!same) leave(WithoutKey::arithmetic, row.field, std::string("here ") + row.here);
  }
}

// What was given, differs from the default, and nobody has looked at.
void Carrier::rest() {
  for (const std::string& field : request_.fields()) {
    if (used_.count(field) > 0 || !request_.differs_from_default(field)) continue;
    const MegatronOption* option = find_megatron_field(field);
    if (option == nullptr) continue;
    const auto of_row = std::find_if(remarks().begin(), remarks().end(),
                                     [&](const Remark& row) { return field == row.field; });
    const bool has_remark = of_row != remarks().end();
    std::string why = has_remark ? of_row->text : "";
    if (!option->branch.empty())
      why += (why.empty() ? "" : "; ") + ("an option of " + option->branch + " alone");
    leave(has_remark ? of_row->without_key : option->without_key, field, why);
  }
  result_.unknown = request_.unknown();
}

void Carrier::carry() {
  bf16_ = request_.flag("bf16") || request_.flag("fp16");
  set("numerics", bf16_ ? "[bf16]" : "[fp32]", request_.flag("bf16") ? "bf16" : "");
  pattern();
  attention();
  mamba();
  mlp();
  experts();
  ranks_and_batches();
  graphs();
  offload();
  sharding();
  recompute();
  data();
  plain();
  steps();
  optimizer();
  fixed();
  rest();
}

FromMegatron Carrier::settled(const std::string& file) && {
  values_["name"] = "from-megatron";
  for (int tries = 0;; ++tries) {
    const std::string yaml = yaml_of(values_);
    const ReadResult read = read_scenario_text(yaml, file);
    if (read.ok()) {
      result_.scenario = read.scenario;
      result_.yaml = to_yaml(read.scenario);
      return std::move(result_);
    }
    const auto error =
        std::find_if(read.errors.begin(), read.errors.end(), [&](const ScenarioError& one) {
          return find_key(one.key) != nullptr && !one.nearest.empty();
        });
    if (error == read.errors.end() || tries == kMostRepairs) throw refusal(read.errors);
    std::string& value = values_[error->key];
    change(error->key, value.empty() ? "the default" : value, error->nearest,
           error->what + " [" + error->rule + "]");
    value = error->nearest;
  }
}

}  // namespace lockstep
