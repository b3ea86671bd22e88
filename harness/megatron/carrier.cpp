#include "harness/megatron/carrier.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "harness/base/errors.h"
#include "harness/run/refusal.h"
#include "scenarios/documents/layout.h"
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

// The words of a YAML list of words, "[a, b]".
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words(1);
  for (const char c : list) {
    if (c == ',') {
      words.emplace_back();
    } else if (c != '[' && c != ']' && c != ' ') {
      words.back() += c;
    }
  }
  std::erase(words, "");
  return words;
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
         : which == WithoutKey::as_here   ? as_here
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

void Carrier::made_small(const std::string& key, const std::string& given, const std::string& is) {
  if (small() && given != is) result_.made_small.push_back(key + " " + given + " -> " + is);
}

std::int64_t Carrier::set_sized(const std::string& key, std::int64_t given, std::int64_t small_one,
                                const std::string& field) {
  const std::int64_t value = sized(given, small_one);
  set(key, value, field);
  made_small(key, std::to_string(given), std::to_string(value));
  return value;
}

void Carrier::idle(const std::string& field, const std::string& without) {
  if (request_.differs_from_default(field))
    leave(WithoutKey::no_effect, field, "no effect without " + without + ", as in Megatron-LM");
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

// All that is missing at once.
void Carrier::require_a_model() const {
  std::vector<std::string> missing;
  const auto require = [&](const char* field) {
    if (!request_.text(field)) missing.push_back(field);
  };
  std::optional<std::string> pattern = request_.text("hybrid_layer_pattern");
  if (!pattern) pattern = request_.text("hybrid_override_pattern");
  if (!pattern) require("num_layers");
  require("hidden_size");
  if (!pattern || pattern->find_first_of("*D+") != std::string::npos)
    require("num_attention_heads");
  if (!request_.text("max_seqlen_per_dp_cp_rank")) require("seq_length");
  if (!missing.empty()) request_.fail_missing(missing);
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
    const bool by_old_name = std::string(row.field) == "position_embedding_type" &&
                             request_.flag("use_rotary_position_embeddings");
    if (by_old_name) continue;
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
    WithoutKey which = has_remark ? of_row->without_key : option->without_key;
    if (has_remark && request_.text(field).value_or("None") == of_row->as_here)
      which = WithoutKey::as_here;
    if (which == WithoutKey::arithmetic && !has_remark)
      why = "no key stands for it: lockstep computes without it";
    if (!option->branch.empty())
      why += (why.empty() ? "" : "; ") + ("an option of " + option->branch + " alone");
    leave(which, field, why);
  }
  result_.unknown = request_.unknown();
}

void Carrier::carry() {
  require_a_model();
  bf16_ = request_.flag("bf16") || request_.flag("fp16");
  set("numerics", bf16_ ? "[bf16]" : "[fp32]", request_.flag("bf16") ? "bf16" : "");
  pattern();
  attention();
  mamba();
  mlp();
  experts();
  sharding();
  ranks_and_batches();
  graphs();
  offload();
  units_that_share();
  recompute();
  data();
  plain();
  steps();
  optimizer();
  fixed();
  rest();
}

void Carrier::drop_section(const std::string& section) {
  const std::string begin = section + ".";
  std::erase_if(values_, [&](const auto& one) { return one.first.rfind(begin, 0) == 0; });
  std::erase_if(result_.carried, [&](const std::string& one) {
    return one.find("-> " + begin) != std::string::npos;
  });
}

// Takes the nearest legal value. A module is only ever left out, since one that nobody asked for
// would move other tensors than the job does.
bool Carrier::repair(const ScenarioError& error) {
  if (find_key(error.key) == nullptr || error.nearest.empty()) return false;
  const std::string asked = values_[error.key], why = error.what + " [" + error.rule + "]";
  std::string is = error.nearest;
  if (error.key == "offload.modules") {
    const std::vector<std::string> legal = words_of(error.nearest);
    std::vector<std::string> kept;
    for (const std::string& module : words_of(asked)) {
      if (std::find(legal.begin(), legal.end(), module) != legal.end()) kept.push_back(module);
    }
    if (kept.empty() || kept == words_of(asked)) {
      change(error.key, asked, "none", "nothing asked for can be offloaded here: " + why);
      drop_section("offload");
      return true;
    }
    is = yaml_list(kept);
  }
  const auto of_key = std::find_if(plain_keys().begin(), plain_keys().end(),
                                   [&](const PlainKey& row) { return row.key == error.key; });
  const bool by_default =
      of_key != plain_keys().end() && !request_.differs_from_default(of_key->field);
  change(error.key, asked.empty() ? "the default" : asked, is, why, by_default);
  values_[error.key] = is;
  return true;
}

// Packs of 64 rows have a handful of documents. A capacity near P75 of them is met and exceeded,
// so that some microbatches replay and others fall back, as in the job.
bool Carrier::fit_capacity(const Scenario& scenario) {
  if (!small() || !graphs_ || !packed_ || capacity_fits_) return false;
  capacity_fits_ = true;
  const std::int64_t ranks = scenario.parallel.data;
  std::vector<std::int64_t> slots;
  for (std::int64_t step = warmup_; step < scenario.training.steps; ++step) {
    GraphNeed of_step;
    for (std::int64_t m = 0; m < scenario.training.microbatches_at(step); ++m) {
      GraphNeed need;
      for (std::int64_t r = 0; r < ranks; ++r) {
        need =
            larger(need, need_of(scenario.data, microbatch_lengths(scenario, step, m * ranks + r)));
      }
      slots.push_back(need.slots);
      of_step = larger(of_step, need);
    }
    if (scenario.cuda_graph.impl == GraphImpl::full_iteration) {
      slots.resize(slots.size() - scenario.training.microbatches_at(step));
      slots.push_back(of_step.slots);
    }
  }
  if (slots.empty()) return false;
  std::sort(slots.begin(), slots.end());
  std::int64_t capacity = std::max<std::int64_t>(1, slots[3 * (slots.size() - 1) / 4]);
  if (asked_slots_ > 0) capacity = std::min(capacity, asked_slots_);
  values_["cuda_graph.max_packed_seqs"] = std::to_string(capacity);
  made_small("cuda_graph.max_packed_seqs",
             asked_slots_ > 0 ? std::to_string(asked_slots_) : "not given",
             std::to_string(capacity) + " (near P75 of the small packs)");
  return true;
}

FromMegatron Carrier::settled(const std::string& file) && {
  values_["name"] = "from-megatron";
  for (int tries = 0;; ++tries) {
    const std::string yaml = yaml_of(values_);
    const ReadResult read = read_scenario_text(yaml, file);
    if (read.ok() && fit_capacity(read.scenario)) continue;
    if (read.ok()) {
      result_.scenario = read.scenario;
      result_.yaml = to_yaml(read.scenario);
      return std::move(result_);
    }
    const bool repaired =
        tries < kMostRepairs && std::any_of(read.errors.begin(), read.errors.end(),
                                            [&](const ScenarioError& one) { return repair(one); });
    if (!repaired) throw refusal(read.errors);
  }
}

}  // namespace lockstep
