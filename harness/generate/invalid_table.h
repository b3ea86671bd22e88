// The tables of edits that each break one rule, for invalid_case.h.
#pragma once

#include <span>
#include <string>

#include "harness/generate/choices.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Edits a legal scenario so that one rule refuses it; false if the scenario lacks a feature that
// the edit needs.
struct InvalidEdit {
  const char* rule;
  bool (*breaks)(Scenario&, Choices&);
};
std::span<const InvalidEdit> training_edits();   // L00 to L23: model, data, training, graphs.
std::span<const InvalidEdit> machinery_edits();  // L24 to L44: offload, sharding, ranks, checker.
std::span<const InvalidEdit> fp8_edits();        // L46 to L51.

// Helpers of the tables.
inline bool has(const Scenario& s, char symbol) {
  return s.model.pattern.find(symbol) != std::string::npos;
}
inline bool partial(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::partial; }
inline bool full(const Scenario& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }
inline bool graphs(const Scenario& s) { return s.cuda_graph.impl != GraphImpl::none; }
inline void fit_any_capacity(Scenario& s) {
  s.cuda_graph.max_packed_seqs = {4096};
  s.cuda_graph.max_seqlen.reset();
}

}  // namespace lockstep
