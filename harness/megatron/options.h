// The options of Megatron-LM, as its own parser declares them.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The class of a value without a key in the scenario: the lists of a report. `as_here`: lockstep
// always does what was asked for.
enum class WithoutKey : unsigned char { arithmetic, machinery, no_effect, as_here };

struct MegatronOption {
  enum class Takes : unsigned char { one, many, sets, clears };
  std::string option;  // Without the dashes before it.
  std::string field;   // As the log and Megatron's code name it.
  std::string value;   // By default; "" where it is a blank or several words.
  std::string branch;  // "main" or "dev", where the other lacks it.
  Takes takes = Takes::one;
  WithoutKey without_key = WithoutKey::no_effect;
};

const std::vector<MegatronOption>& megatron_options();
// By an option's name with its dashes; nullptr where there is none.
const MegatronOption* find_megatron_option(const std::string& name);
// By the field's name.
const MegatronOption* find_megatron_field(const std::string& name);

}  // namespace lockstep
