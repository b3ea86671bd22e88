// `lockstep fuzz --merge`: out of many corpora a small one that meets all that they meet. Nothing
// is run.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

// A file meets its features, their pairs, the class of failure that a campaign named it after, and
// where it must be refused, the rule.
struct MergeReport {
  std::size_t there = 0;     // Files that the corpus had.
  std::size_t read = 0;      // Files of the folders.
  std::size_t features = 0;  // What all of these files meet.
  std::size_t pairs = 0;
  std::size_t classes = 0;              // Classes of failures, and rules.
  std::vector<std::string> added = {};  // Relative to the corpus, in the order of choice.
};

// Adds to the corpus the files of the folders that meet what no other file of it meets: each time
// the file that meets most, of several the one with the least work. What later files made
// superfluous is left out. What the corpus has stays. Throws RequestError, and writes nothing,
// where a file is neither a legal scenario nor one that is refused as it expects; WorldError.
MergeReport merge_corpora(const std::string& corpus, const std::vector<std::string>& folders);

std::string merge_text(const std::string& corpus, const MergeReport& report);
boost::json::object merge_json(const std::string& corpus, const MergeReport& report);

}  // namespace lockstep
