#include "harness/packing/capacities.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

std::optional<std::int64_t> capacity_of(std::string_view word, const PackHistogram& histogram) {
  // A graph of no document is one of one.
  const auto at_least_one = [](std::int64_t documents) {
    return std::max<std::int64_t>(documents, 1);
  };
  if (word == "max") return at_least_one(histogram.rbegin()->first);
  if (word.starts_with('p') || word.starts_with('P')) {
    const auto percent = number_in<double>(word.substr(1));
    if (!percent || !(*percent > 0 && *percent <= 100)) return {};
    return at_least_one(percentile(histogram, *percent / 100));
  }
  const auto number = number_in<std::int64_t>(word);
  if (!number || *number < 1 || *number > kMostSlots) return {};
  return number;
}

}  // namespace

std::vector<NamedCapacity> named_capacities(const std::string& words,
                                            const PackHistogram& histogram) {
  std::vector<NamedCapacity> list;
  for (std::size_t begin = 0, end; begin <= words.size(); begin = end + 1) {
    end = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    const auto capacity = capacity_of(word, histogram);
    if (!capacity) {
      throw RequestError("--at " + word +
                         ": a number of documents (1 to 65536), a percentile such as p99, or max");
    }
    list.push_back({word, *capacity});
  }
  return list;
}

}  // namespace lockstep
