#include "harness/packing/histogram.h"

#include <cmath>
#include <utility>

#include "harness/base/errors.h"
#include "scenarios/documents/documents.h"

namespace lockstep {
PackHistogram read_histogram(const std::string& path) {
  HistogramFile file = read_histogram_file(path);
  if (file.faults.empty()) return std::move(file.histogram);
  const DataFault& fault = file.faults.front();
  const std::string line = fault.line == 0 ? "" : ":" + std::to_string(fault.line);
  throw RequestError(fault.file + line + ": " + fault.what);
}

PackHistogram count_packs(const Scenario& scenario) {
  const auto data = open_data(scenario);
  PackHistogram histogram;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    for (const Microbatch& microbatch : data->training(step).microbatches) {
      ++histogram[slots_in_use(scenario.data, microbatch)];
    }
  }
  return histogram;
}

std::int64_t packs(const PackHistogram& histogram) {
  std::int64_t sum = 0;
  for (const auto& [documents, count] : histogram) sum += count;
  return sum;
}

std::int64_t percentile(const PackHistogram& histogram, double share) {
  const auto wanted =
      static_cast<std::int64_t>(std::ceil(share * static_cast<double>(packs(histogram))));
  std::int64_t seen = 0;
  for (const auto& [documents, count] : histogram) {
    seen += count;
    if (seen >= wanted) return documents;
  }
  return histogram.rbegin()->first;
}

}  // namespace lockstep
