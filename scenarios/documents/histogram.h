// A histogram of packs by their number of documents, and the text file that states one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scenarios/documents/raw_documents.h"

namespace lockstep {

// Slots of a pack (empty documents count) -> packs.
using PackHistogram = std::map<std::int64_t, std::int64_t>;

inline constexpr std::int64_t kMostSlots = 65536;  // cuda_graph.max_packed_seqs.

struct HistogramFile {
  PackHistogram histogram;  // Without the numbers that no pack has.
  std::string digest;       // MD5 of the file.
  std::vector<DataFault> faults;
};

// Lines of "documents packs", separated by blanks, a comma, a semicolon or a tab; '#' begins a
// comment. The file is a regular one of at most 1 MiB; there are 0 to 65536 documents, and packs
// are 2^53 in all at most. Ends at the first fault.
HistogramFile read_histogram_file(const std::string& path);

}  // namespace lockstep
