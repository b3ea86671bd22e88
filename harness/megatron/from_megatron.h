// A scenario from what somebody gave Megatron-LM, and what it could not carry.
#pragma once

#include <string>
#include <vector>

#include "harness/megatron/request.h"
#include "scenarios/scenario.h"

namespace lockstep {

enum class Sizes : unsigned char { keep, small };

struct FromMegatron {
  struct Left {  // A field without a key.
    std::string field, value, why;
  };
  struct Changed {  // A key whose value is not what was asked for.
    std::string key, asked, is, why;
    bool by_default = false;  // Nobody wrote it: it is Megatron's default.
  };
  Scenario scenario;
  std::string yaml;                  // Reads back equal to it.
  std::vector<std::string> carried;  // "hidden_size -> model.hidden"
  std::vector<Changed> changed;
  std::vector<Left> arithmetic, machinery, no_effect, as_here;
  std::vector<std::string> made_small;  // "model.hidden 4096 -> 32"
  std::vector<std::string> unknown;     // Names that neither branch has.
  std::vector<Left>& list(WithoutKey which);
};

// RequestError where no scenario can be made of it.
FromMegatron from_megatron(const MegatronRequest& request, Sizes sizes, const std::string& file);
// The same, of a file. RequestError for one that cannot be read or is too large.
FromMegatron from_megatron_file(const std::string& path, Sizes sizes);

// The scenario as a YAML file, in whose comments stands what it could not carry.
std::string to_commented_yaml(const FromMegatron& from, const std::string& file, Sizes sizes);

}  // namespace lockstep
