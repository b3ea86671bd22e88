// The state of a run in safetensors files. A rank that has all of it writes one file. Ranks that
// share it write a file each, and an index with the names and checksums of these files. The index
// is written last: until it is in place, the earlier checkpoint is valid and keeps its files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep {

// Elements [first, first + values.size()) of a tensor.
struct TensorShard {
  std::string name;
  std::int64_t rows = 0, cols = 0;  // The shape of the whole tensor.
  std::int64_t first = 0;
  bool on_every_rank = false;  // Every rank has the same shard.
  std::vector<float> values;
};

using Metadata = std::map<std::string, std::string>;
struct RunState {
  Metadata metadata;
  std::vector<TensorShard> shards;
};

// Every rank calls it; `communicator` is null if there is one rank. Afterwards it removes the rank
// files of the checkpoint before, if its metadata have the same `identity`. Throws as
// write_checkpoint().
void write_run(const std::string& path, const Metadata& identity, const RunState& state,
               Communicator* communicator);

// Gives the metadata of the checkpoint to `wanted` and fills the values of the shards that it
// returns, whatever ranks wrote them. Throws std::runtime_error for torn, missing or changed files,
// for files of another run (whose metadata differ from `identity`), and for missing shards.
RunState read_run(const std::string& path, const Metadata& identity,
                  const std::function<std::vector<TensorShard>(const Metadata&)>& wanted);

}  // namespace lockstep
