// Collects keys of a scenario from fields of Megatron-LM, and which fields were looked at.
#pragma once

#include <map>
#include <set>
#include <string>

#include "harness/megatron/from_megatron.h"
#include "harness/megatron/table.h"
#include "scenarios/io/reader.h"

namespace lockstep {

class Carrier {
 public:
  Carrier(const MegatronRequest& request, Sizes sizes) : request_(request), sizes_(sizes) {}

  void carry();
  // Until the rules of legality are satisfied, each by the value that it names as nearest.
  FromMegatron settled(const std::string& file) &&;

 private:
  void require_a_model() const;
  // carry_model.cpp
  void pattern();
  void attention();
  void mamba();
  void mlp();
  void experts();
  void recompute();
  // carry_training.cpp
  void ranks_and_batches();
  void data();
  void steps();
  void optimizer();
  // carry_machinery.cpp
  void graphs();
  void units_that_share();
  void offload();
  void sharding();
  // carrier.cpp
  void plain();
  void fixed();
  void rest();

  bool small() const { return sizes_ == Sizes::small; }
  bool meets(When when) const;
  bool has_symbol(char symbol) const { return pattern_.find(symbol) != std::string::npos; }
  // `given` as it is, or `small_one` at most under small sizes.
  std::int64_t sized(std::int64_t given, std::int64_t small_one) const;
  // The key gets the value `sized`; where that is smaller, the report says so.
  std::int64_t set_sized(const std::string& key, std::int64_t given, std::int64_t small_one,
                         const std::string& field = "");
  // Notes that small sizes changed a key, if they did.
  void made_small(const std::string& key, const std::string& given, const std::string& is);
  // Lists a field that was given and does nothing without a switch that was not.
  void idle(const std::string& field, const std::string& without);
  std::int64_t required(const std::string& field) const;
  // Looks at a field: it will not be listed as left.
  void use(const std::string& field) { used_.insert(field); }
  void set(const std::string& key, const std::string& value, const std::string& field = "");
  void set(const std::string& key, std::int64_t value, const std::string& field = "") {
    set(key, std::to_string(value), field);
  }
  // Gives up a section, all of whose modules the rules refuse.
  void drop_section(const std::string& section);
  bool repair(const ScenarioError& error);
  bool fit_capacity(const Scenario& scenario);
  void leave(WithoutKey which, const std::string& field, const std::string& why);
  void change(const std::string& key, const std::string& asked, const std::string& is,
              const std::string& why, bool by_default = false) {
    result_.changed.push_back({key, asked, is, why, by_default});
  }

  const MegatronRequest& request_;
  const Sizes sizes_;
  std::map<std::string, std::string> values_;  // Key -> YAML.
  std::set<std::string> used_;
  std::string pattern_, asked_pattern_;
  std::int64_t asked_slots_ = 0, asked_batch_ = 1;  // asked_slots_: 0 where nobody asked.
  std::int64_t ranks_ = 1, rows_ = 0, micro_batch_ = 1, warmup_ = 0;
  bool bf16_ = false, graphs_ = false, offload_ = false, sharding_ = false, packed_ = false;
  bool shares_slots_ = false, capacity_fits_ = false;
  FromMegatron result_;
};

// Words as a YAML list.
std::string yaml_list(const std::vector<std::string>& words);
std::string yaml_number(double value);
std::string yaml_ratio(double value);  // At most 6 digits after the point.

}  // namespace lockstep
