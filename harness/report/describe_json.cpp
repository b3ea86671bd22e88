#include "harness/report/describe_json.h"

#include <limits>

#include "harness/base/version.h"
#include "harness/expect/expectations.h"
#include "harness/expect/parameter_table.h"
#include "harness/expect/run_estimate.h"
#include "harness/report/offload_matrix.h"
#include "harness/report/shared_memory_table.h"
#include "scenarios/documents/documents.h"
#include "scenarios/rules/legality.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

json::array errors_of(const ReadResult& read) {
  json::array list;
  for (const ScenarioError& error : read.errors) {
    list.push_back(json::object{{"rule", error.rule},
                                {"file", as_utf8(error.file)},
                                {"line", error.line},
                                {"column", error.column},
                                {"key", as_utf8(error.key)},
                                {"text", as_utf8(error.text())}});
  }
  return list;
}

json::array regions_of(const Scenario& scenario) {
  json::array list;
  for (const Scenario::Block& block : scenario.blocks()) {
    list.push_back(
        json::object{{"block", scenario.model.pattern.substr(block.first, block.count)},
                     {"first_layer", block.first},
                     {"captured_layers", json::value_from(captured_symbols(scenario, block))}});
  }
  return list;
}

json::array parameters_of(const Scenario& scenario) {
  json::array list;
  for (const ParameterShape& one : parameter_table(scenario)) {
    list.push_back(json::object{{"name", one.name}, {"rows", one.rows}, {"cols", one.cols}});
  }
  return list;
}

// By precision, then counter.
json::object counters_of(const Scenario& scenario) {
  json::object all;
  for (const PrecisionExpectations& precision : expectations_by_precision(scenario)) {
    json::object ranges;
    for (const Expectation& one : precision.expected) {
      json::object range{{"min", one.min}};
      if (one.max != std::numeric_limits<std::int64_t>::max()) range["max"] = one.max;
      range["why"] = one.why;
      ranges[to_text(one.counter)] = range;
    }
    all[to_text(precision.numerics)] = std::move(ranges);
  }
  return all;
}

// A run trains on so many, over all ranks: a list of lengths is used again and again.
std::int64_t documents_of(const Scenario& scenario) {
  const auto data = open_data(scenario);
  std::int64_t documents = 0;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    for (const Microbatch& microbatch : data->training(step).microbatches)
      documents += std::ssize(microbatch.documents);
  }
  return documents;
}

}  // namespace

std::string describe_json(const ReadResult& read) {
  const bool legal = read.ok() || read.rule() == "L00";
  json::object all{{"tool", "lockstep"},         {"version", version()}, {"revision", revision()},
                   {"name", read.scenario.name}, {"legal", legal},       {"built", read.ok()},
                   {"errors", errors_of(read)}};
  if (!legal) return json::serialize(all);
  const Scenario& scenario = read.scenario;
  all["blocks"] = regions_of(scenario);
  all["regions"] = graph_regions(scenario);
  all["parameters"] = parameters_of(scenario);
  all["keys_without_effect"] = json::value_from(keys_without_effect(scenario));
  if (scenario.cuda_graph.shared_memory) all["shared_memory"] = shared_memory_json(scenario);
  const RunEstimate estimate = estimate_run(scenario);
  const double engine = estimate.engine(static_cast<double>(scenario.parallel.data));
  all["estimate"] = json::object{{"train_bytes", engine},
                                 {"verify_bytes", engine + estimate.reference},
                                 {"multiply_adds", estimate.multiply_adds}};
  if (read.ok() && can_be_counted_at_once(scenario)) {
    all["expected_counters"] = counters_of(scenario);
    all["documents"] = documents_of(scenario);
  }
  // The canonical form to the byte: the library would write 0.1 as 1E-1, which no ratio of a
  // scenario may be.
  std::string text = json::serialize(all);
  text.pop_back();
  return text + ",\"scenario\":" + canonical_form(scenario) + "}";
}

json::object built_json() {
  json::array list;
  for (const Feature& feature : features())
    list.push_back(json::object{{"key", feature.key}, {"built", feature.built}});
  return {{"tool", "lockstep"},
          {"version", version()},
          {"revision", revision()},
          {"features", std::move(list)},
          {"offload_matrix", offload_matrix()}};
}

}  // namespace lockstep
