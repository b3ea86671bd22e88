#include "scenarios/documents/histogram.h"

#include <algorithm>
#include <sstream>

#include "scenarios/documents/input_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::int64_t kMostPacks = std::int64_t{1} << 53;  // All of them: shares are doubles.

std::string text_of(InputFile& file, const std::string& path) {
  std::string text;
  for (std::string_view piece; !(piece = file.next()).empty();) {
    text += piece;
    if (text.size() > kMostBytes)
      throw Unreadable{{path, 0, "is larger than 1 MiB, the most of a histogram"}};
  }
  return text;
}

// Adds what a line says; returns what is wrong with it.
std::string take_line(std::string line, std::int64_t& all, PackHistogram& histogram) {
  line.resize(std::min(line.find('#'), line.size()));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == ',' || c == ';' || c == '\r'; }, ' ');
  std::istringstream words(line);
  std::int64_t documents = 0, count = 0;
  std::string rest;
  if (!(words >> std::ws) || words.eof()) return "";
  if (!(words >> documents >> count) || words >> rest) return "two numbers, documents and packs";
  if (documents < 0 || documents > kMostSlots) {
    return "0 to " + std::to_string(kMostSlots) + " documents, not " + std::to_string(documents);
  }
  if (count < 0 || count > kMostPacks - all) return "a number of packs, 0 to 2^53 in all";
  all += count;
  if (count > 0) histogram[documents] += count;
  return "";
}

}  // namespace

HistogramFile read_histogram_file(const std::string& path) {
  HistogramFile found;
  try {
    InputFile file(path);
    std::istringstream lines(text_of(file, path));
    found.digest = file.digest();
    std::int64_t all = 0;
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (const std::string wrong = take_line(line, all, found.histogram); !wrong.empty())
        throw Unreadable{{path, number, wrong}};
    }
    if (found.histogram.empty()) throw Unreadable{{path, 0, "no pack in it"}};
  } catch (const Unreadable& unreadable) {
    found.faults.push_back(unreadable.fault);
  }
  return found;
}

}  // namespace lockstep
