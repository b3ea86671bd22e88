// Edits that break one rule each: the tables behind campaign_breakers.h.
#pragma once

#include <span>
#include <string>

#include "harness/generate/choices.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Edits a legal scenario so that one rule refuses it; false where this one has not what the edit needs.
struct Breaker {
  const char* rule;
  bool (*breaks)(Scenario&, Choices&);
};
std::span<const Breaker> training_breakers();   // L00 to L23: model, data, training, graphs.
std::span<const Breaker> machinery_breakers();  // L24 to L40: offload, sharding, ranks, checker.

// What both tables need.
inline bool has(const Scenario& s, char symbol) { return s.model.pattern.find(symbol) != std::string::npos; }
inline bool partial(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::partial; }
inline bool full(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }
inline bool graphs(const Scenario& s) { return s.cuda_graph.impl != GraphImpl::none; }
inline void fit_any_capacity(Scenario& s) { s.cuda_graph.max_packed_seqs = {4096}; }

}  // namespace lockstep
