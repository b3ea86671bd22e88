// The state of a run in safetensors files. One rank that has everything writes one file. Ranks that share it write a
// file each, beside an index that names them and their checksums and is written last: until it is in place the
// checkpoint before is the valid one, and its files are there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep {

// Elements [first, first + values.size()) of a tensor.
struct StatePart {
  std::string name;
  std::int64_t rows = 0, cols = 0;  // Of the whole tensor.
  std::int64_t first = 0;
  bool on_every_rank = false;  // Every rank has the same part.
  std::vector<float> values;
};

using Metadata = std::map<std::string, std::string>;
struct RunState {
  Metadata metadata;
  std::vector<StatePart> parts;
};

// Every rank calls it; `communicator` is null where there is one. Throws as write_checkpoint().
void write_run(const std::string& path, const RunState& state, Communicator* communicator);

// Fills the values of the parts that `wanted` asks for once it has seen what the file says about itself, whoever wrote
// them. Throws std::runtime_error for torn, missing or changed files, for those of another run (whose metadata differ
// from `identity`), and where a part is not there.
RunState read_run(const std::string& path, const Metadata& identity,
                  const std::function<std::vector<StatePart>(const Metadata&)>& wanted);

}  // namespace lockstep
