#include "harness/packing/histogram.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "harness/base/errors.h"
#include "scenarios/documents/documents.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostDocuments = 65536;              // cuda_graph.max_packed_seqs.
constexpr std::int64_t kMostPacks = std::int64_t{1} << 53;  // All of them: shares are doubles.

[[noreturn]] void refuse(const std::string& path, std::int64_t line, const std::string& why) {
  throw RequestError(path + ":" + std::to_string(line) + ": " + why);
}

}  // namespace

PackHistogram read_histogram(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw RequestError(path + ": cannot be read");
  PackHistogram histogram;
  std::int64_t number = 0, all = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == ',' || c == ';' || c == '\r'; }, ' ');
    std::istringstream words(line);
    std::int64_t documents = 0, count = 0;
    std::string rest;
    if (!(words >> std::ws) || words.eof()) continue;
    if (!(words >> documents >> count) || words >> rest)
      refuse(path, number, "two numbers, documents and packs");
    if (documents < 0 || documents > kMostDocuments) {
      refuse(path, number,
             "0 to " + std::to_string(kMostDocuments) + " documents, not " +
                 std::to_string(documents));
    }
    if (count < 0 || count > kMostPacks - all)
      refuse(path, number, "a number of packs, 0 to 2^53 in all");
    all += count;
    if (count > 0) histogram[documents] += count;
  }
  if (file.bad()) throw WorldError(path + ": reading failed");
  if (histogram.empty()) throw RequestError(path + ": no pack in it");
  return histogram;
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
