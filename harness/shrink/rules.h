// A declared, ordered list of rules by which a scenario may become smaller. Each proposes
// candidates, the boldest first. A candidate may be illegal or may not fail: the search tests it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

struct ShrinkRule {
  std::string name;
  std::function<std::vector<Scenario>(const Scenario&)> candidates;
};

// In the order in which they are tried: those that make a run cheaper come first.
// `documents`: steps, microbatches and whole documents go before features, so that a search whose
// budget is a few dozen runs ends with few documents.
enum class Early { features, documents };
const std::vector<ShrinkRule>& shrink_rules(Early early = Early::features);

// The one of settings alone: all of them, halves, single ones back to their defaults.
ShrinkRule settings_rule();

// The rule that is tried when no other finds anything: few documents in other places.
ShrinkRule small_layouts_rule();

// The sublists, by subject.
std::vector<ShrinkRule> shrink_document_rules();
std::vector<ShrinkRule> fewer_documents_rules();  // These rules take whole documents out.
std::vector<ShrinkRule> shrink_training_rules();
std::vector<ShrinkRule> shrink_model_rules();
std::vector<ShrinkRule> shrink_setting_rules();
std::vector<ShrinkRule> shrink_rank_rules();

// Every candidate goes through this before it is checked: keys that depend on others, brought back
// into their ranges after an edit (steps that no longer exist, a depth above the microbatches, a
// module without its layer), and keys without effect put back.
Scenario settled(Scenario scenario);

// Delta debugging (Zeller): the ranges [begin, end) of a list of n that are taken out, halves
// first, single ones last.
std::vector<std::pair<std::size_t, std::size_t>> removals(std::size_t n);
template <class T>
std::vector<T> without(std::vector<T> list, std::pair<std::size_t, std::size_t> range) {
  using Offset = typename std::vector<T>::difference_type;
  list.erase(list.begin() + static_cast<Offset>(range.first),
             list.begin() + static_cast<Offset>(range.second));
  return list;
}

std::int64_t documents_in(const std::vector<StepLengths>& layouts);

// Numbers below `value`, the boldest first: the least, half way, a quarter of the way, ..., one
// less.
std::vector<std::int64_t> smaller(std::int64_t value, std::int64_t least);

// A key that can stand at its default.
struct Setting {
  std::string key;
  std::function<void(Scenario&)> reset;
};
// Every key that is a feature or a constant, not a size: these go back to their defaults.
const std::vector<Setting>& settings();

// An integer key that is a size: it goes down to its least value.
struct Size {
  std::string key;
  std::int64_t least;
  std::function<std::int64_t&(Scenario&)> at;
};
const std::vector<Size>& sizes();

}  // namespace lockstep
