// The counts side of features.h.
#include <algorithm>
#include <cstdio>

#include "harness/generate/features.h"
#include "harness/generate/traits.h"

namespace lockstep {

static bool is_counted(std::size_t a, std::size_t b) {
  return can_meet(a, b) && !trait_names()[a].rare && !trait_names()[b].rare;
}

void Distribution::add(const Traits& traits) {
  ++cases_;
  const std::size_t count = trait_names().size();
  for (std::size_t a = 0; a < count; ++a) {
    if (!traits[a]) continue;
    for (std::size_t b = a; b < count; ++b) {
      if (traits[b] && pairs_[a * kMostTraits + b]++ == 0 && is_counted(a, b)) ++met_;
    }
  }
}

std::size_t Distribution::pairs_that_can_meet() {
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < trait_names().size(); ++a) {
    for (std::size_t b = a + 1; b < trait_names().size(); ++b) pairs += is_counted(a, b);
  }
  return pairs;
}

std::vector<std::pair<std::size_t, std::size_t>> Distribution::never_met() const {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t a = 0; a < trait_names().size(); ++a) {
    for (std::size_t b = a + 1; b < trait_names().size(); ++b) {
      if (is_counted(a, b) && count(a, b) == 0) pairs.emplace_back(a, b);
    }
  }
  return pairs;
}

std::string Distribution::table() const {
  constexpr std::size_t kMostShown = 20;
  const double all = static_cast<double>(std::max<std::int64_t>(cases_, 1));
  char text[160];
  std::string out;
  for (const bool boundary : {false, true}) {
    out += boundary ? "boundaries, of all cases\n" : "features, of all cases\n";
    for (std::size_t i = 0; i < trait_names().size(); ++i) {
      if (trait_names()[i].boundary != boundary) continue;
      std::snprintf(text, sizeof text, "  %-34s %8lld %5.1f %%\n", trait_names()[i].name.c_str(),
                    static_cast<long long>(count(i)), 100 * static_cast<double>(count(i)) / all);
      out += text;
    }
  }
  const auto missing = never_met();
  std::snprintf(text, sizeof text, "pairs that met: %zu of %zu\n", pairs_met(),
                pairs_that_can_meet());
  out += text;
  for (std::size_t i = 0; i < std::min(missing.size(), kMostShown); ++i) {
    out += "  never met: " + trait_names()[missing[i].first].name + " and " +
           trait_names()[missing[i].second].name + "\n";
  }
  if (missing.size() > kMostShown)
    out += "  and " + std::to_string(missing.size() - kMostShown) + " more (--json)\n";
  return out;
}

// A rare trait is one of fp8 if no case of another precision has it.
std::vector<std::pair<std::string, std::int64_t>> Distribution::met_in_fp8() const {
  const auto of = [](Trait trait) { return static_cast<unsigned>(trait); };
  const std::size_t fp8 = of(Trait::fp8);
  std::vector<std::pair<std::string, std::int64_t>> met;
  for (std::size_t i = 0; i < trait_names().size(); ++i) {
    const bool is_own = i >= of(Trait::experts_in_fp8) && i <= of(Trait::a_zero_fp8_operand);
    const bool is_key = i >= of(Trait::saves_qkv_linear) && i <= of(Trait::a_history_of_many);
    if (can_meet(fp8, i) && (is_own || is_key || !trait_names()[i].rare))
      met.emplace_back(trait_names()[i].name, i < fp8 ? count(i, fp8) : count(fp8, i));
  }
  met.emplace_back("current exponents", count(fp8) - count(fp8, of(Trait::delayed_exponents)));
  met.emplace_back("cached fp8 weights", count(fp8) - count(fp8, of(Trait::uncached_fp8_weights)));
  std::ranges::stable_sort(met, {}, &std::pair<std::string, std::int64_t>::second);
  return met;
}

boost::json::object Distribution::to_json() const {
  boost::json::object features, boundaries;
  boost::json::array pairs, never;
  for (std::size_t a = 0; a < trait_names().size(); ++a) {
    (trait_names()[a].boundary ? boundaries : features)[trait_names()[a].name] = count(a);
    for (std::size_t b = a + 1; b < trait_names().size(); ++b) {
      if (is_counted(a, b))
        pairs.push_back({trait_names()[a].name, trait_names()[b].name, count(a, b)});
    }
  }
  for (const auto& [a, b] : never_met())
    never.push_back({trait_names()[a].name, trait_names()[b].name});
  return {{"cases", cases_},          {"features", features},
          {"boundaries", boundaries}, {"pairs_met", pairs_met()},
          {"pairs", pairs},           {"pairs_that_can_meet", pairs_that_can_meet()},
          {"never_met", never}};
}

}  // namespace lockstep
