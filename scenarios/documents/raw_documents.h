// The documents at `data.path` as bytes, before anybody splits or packs them (kinds text and
// jsonl).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Bytes [begin, end) of a document.
struct ByteSpan {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

struct RawDocument {
  std::string bytes;
  // Bytes that may be targets, increasing and not touching: all of a text, of `messages` the
  // contents of mask.roles.
  std::vector<ByteSpan> targets;
};

// A fault of the data, for rule Y08: the file and, in a JSONL file, the line (1-based, else 0).
struct DataFault {
  std::string file;
  int line = 0;
  std::string what;
};

// `data.path` under the scenario's folder.
std::string data_path(const Scenario& scenario);

// The faults, and if there are none the digest of the bytes that were read.
struct DataFindings {
  std::vector<DataFault> faults;
  std::string digest;
};

// Hands every document over in the source's order: files by the bytes of their path below the
// folder, records by line. Returns what is wrong, at most some twenty faults, and goes on after
// each of them. A record of more than 64 MiB and 4 GiB in all are faults that end it.
DataFindings for_each_document(const Scenario& scenario,
                               const std::function<void(RawDocument)>& take);

// Reads all of them. Throws std::runtime_error at a fault, or where they do not have `data.digest`:
// the scenario's reader has checked them, so the files have changed since.
std::vector<RawDocument> read_raw_documents(const Scenario& scenario);

// 32 hex digits. A JSONL file: its MD5. A folder: MD5 of the lines "MD5-of-file  path\n" in the
// order above, so that (cd folder && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0
// md5sum | md5sum) prints the same. Throws std::runtime_error where the data cannot be read.
std::string data_digest(const Scenario& scenario);

}  // namespace lockstep
