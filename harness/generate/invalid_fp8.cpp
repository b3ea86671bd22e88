// Near-legal: rules on the keys of fp8. The scenario becomes one in fp8 first.
#include <algorithm>
#include <vector>

#include "harness/generate/invalid_table.h"
#include "harness/generate/parts.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// False where it stays legal in no such way.
bool take_fp8(Scenario& s) {
  s.numerics = {Numerics::fp8};
  widen_for_fp8(s.model);
  s.data.pack_length = (s.data.pack_length + 15) / 16 * 16;
  s.training.resume_at.clear();
  s.fp8 = {};
  s.fp8.weight_cache = default_weight_cache(s);
  s.fp8.save_original_input = implied_original_inputs(s.model);
  return check_legality(s).empty();
}

// The codes are gathered, or kept, where they cannot be.
bool keep_codes(Scenario& s, bool gathers, bool caches) {
  if (!take_fp8(s)) return false;
  s.fp8.param_gather = gathers;
  s.fp8.weight_cache = caches;
  return true;
}

constexpr InvalidEdit kEdits[] = {
    {"L46",
     [](Scenario& s, Choices&) {
       s.cuda_graph.warmup_steps = 0;
       const bool is_legal = take_fp8(s);
       s.fp8.recipe = Fp8Recipe::delayed;
       return is_legal && graphs(s);
     }},
    {"L47",
     [](Scenario& s, Choices&) {
       if (!take_fp8(s)) return false;
       std::vector<Fp8Layer>& saved = s.fp8.save_original_input;
       const std::size_t before = saved.size();
       for (int i = static_cast<int>(Fp8Layer::shared_fc2); i >= 0; --i) {
         const auto layer = static_cast<Fp8Layer>(i);
         if (saved.size() == before && !has_fp8_layer(s.model, layer)) saved.push_back(layer);
       }
       std::ranges::sort(saved);
       return saved.size() > before;
     }},
    {"L48",
     [](Scenario& s, Choices& c) {
       const std::vector<Fp8Layer> implied = implied_original_inputs(s.model);
       if (implied.empty() || !take_fp8(s)) return false;
       std::erase(s.fp8.save_original_input, c.pick(implied));
       return true;
     }},
    {"L49", [](Scenario& s, Choices&) { return keep_codes(s, true, true) && !with_sharding(s); }},
    {"L50",
     [](Scenario& s, Choices&) {
       return keep_codes(s, false, true) && s.fsdp.strategy == Sharding::optim_grads_params;
     }},
    {"L51", [](Scenario& s, Choices&) { return keep_codes(s, true, false) && with_sharding(s); }},
};

}  // namespace

std::span<const InvalidEdit> fp8_edits() { return kEdits; }

}  // namespace lockstep
