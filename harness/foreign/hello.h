// What an engine says about itself (docs/engine-protocol.md, section 4).
#pragma once

#include <boost/json.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::foreign {

struct Hello {
  std::map<std::string, std::string> engine;  // name, version, and what else it says.
  std::map<std::string, std::string> device;  // kind, name.
  boost::json::object honours;
  bool deterministic = false, weights_by_name = false, recompute_exact = false;
  bool padding_defined = false, padding_zero = false, loss_scaled = false;
  bool dropout_by_key = false;           // Masks of dropout are those of docs/arithmetic.md 0.4.
  std::set<std::string> row_invariant;   // Precisions.
  std::set<std::string> counters_exact;  // Counters that are those of `describe`.
  std::vector<std::string> observes;     // Kinds of tensors, without repeats.
  std::map<std::string, std::string> counts;  // Counter -> seen or said.
  std::set<std::string> amplifies, delays;    // `delays`: streams.
  std::vector<std::string> unstable;          // Patterns of tensor names.
  std::string expectations;                   // Path of its file of expected failures, "" for none.

  bool observes_kind(const std::string& kind) const;
  bool has_word(const char* word) const;  // A word of `honours` that is true.
  // "torch-packed 0.1 (torch 2.11.0)"
  std::string engine_text() const;
};

// Throws std::invalid_argument for a reply that lacks what is required, or has another type.
Hello hello_from_json(const boost::json::object& reply);

// Whether `text` is `pattern`, in which * stands for any characters.
bool matches(const std::string& pattern, const std::string& text);

}  // namespace lockstep::foreign
