// The state of a run in safetensors files. One rank that has everything writes one file. Ranks that share it write a
// file each, beside an index that names them and their checksums and is written last: until it is in place the
// checkpoint before is the valid one, and its files are there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/communicator.h"

namespace lockstep {

// Elements [first, first + values.size()) of a tensor.
struct StatePart {
  std::string name;
  std::int64_t rows = 0, cols = 0;  // Of the whole tensor.
  std::int64_t first = 0;
  bool on_every_rank = false;  // Every rank has the same part.
  std::vector<float> values;
};

struct RunState {
  std::map<std::string, std::string> identity;
  std::vector<StatePart> parts;
};

// Every rank calls it; `communicator` is null where there is one. Throws as write_checkpoint().
void write_run(const std::string& path, const RunState& state, Communicator* communicator);

// Fills the values of `state`, whoever wrote them, and returns what the file says about itself. Throws
// std::runtime_error for torn, missing or changed files, for those of another run (whose identity differs in more than
// "steps_done"), and where `state` asks for what is not there.
std::map<std::string, std::string> read_run(const std::string& path, RunState& state);

}  // namespace lockstep
