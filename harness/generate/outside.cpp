#include "harness/generate/outside.h"

#include <algorithm>
#include <sstream>

#include "harness/base/errors.h"

namespace lockstep {

const std::vector<OutsideName>& outside_names() {
  static const std::vector<OutsideName> names{
      {"processes", &Outside::processes, Trait::ranks_in_processes},
      {"nccl", &Outside::nccl, Trait::ranks_over_nccl},
      {"cudnn", &Outside::cudnn, Trait::attention_by_cudnn},
      {"fp8", &Outside::fp8, Trait::fp8}};
  return names;
}

std::string to_text(const Outside& outside) {
  std::string list;
  for (const OutsideName& one : outside_names()) {
    if (outside.*one.asked) list += (list.empty() ? "" : ",") + std::string(one.name);
  }
  return list;
}

Outside outside_of(const std::string& list) {
  Outside outside;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto known =
        std::ranges::find_if(outside_names(), [&](const auto& one) { return word == one.name; });
    if (known == outside_names().end()) {
      throw RequestError("--with '" + word +
                         "' is none of processes, nccl, cudnn and fp8, which a comma separates");
    }
    outside.*known->asked = true;
  }
  return outside;
}

Scenario smallest_with(const Outside& outside) {
  Scenario s;
  s.name = "smallest";
  if (outside.transports()) {
    s.parallel = {.data = 2, .transport = outside.nccl ? Transport::nccl : Transport::shm};
  }
  if (outside.cudnn) {
    s.numerics = {Numerics::bf16};
    s.model.pattern = "*";
    s.model.core_attention = CoreAttention::cudnn;
  }
  if (outside.fp8 && !outside.cudnn) s.numerics = {Numerics::fp8};
  return s;
}

}  // namespace lockstep
