#include "engine/checkpoint/run_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "engine/checkpoint/checkpoint.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// Two sets of files alternate, so that a new checkpoint does not overwrite files of the valid one.
std::string file_of(const std::string& path, const std::string& set, int rank, int ranks) {
  char suffix[48];
  std::snprintf(suffix, sizeof(suffix), ".%s.rank-%04d-of-%04d", set.c_str(), rank, ranks);
  return path + suffix;
}
std::string checksum_key(int rank) { return "checksum of rank " + std::to_string(rank); }

int number(const std::string& path, const std::string& text) {
  try {
    const int value = std::stoi(text);
    if (value > 0 && std::to_string(value) == text) return value;
  } catch (const std::logic_error&) {
  }
  throw std::runtime_error(path + ": not an index of a checkpoint: ranks is " + text);
}

// The files that an index names: none if the file is missing or is no index.
struct Index {
  Metadata metadata;
  std::vector<std::string> files;
};
Index index_in(const std::string& path, const Checkpoint& checkpoint) {
  Index index{checkpoint.metadata, {}};
  const auto ranks = index.metadata.find("ranks");
  if (ranks == index.metadata.end()) return index;
  const int count = number(path, ranks->second);
  for (int r = 0; r < count; ++r)
    index.files.push_back(file_of(path, index.metadata["set"], r, count));
  return index;
}
Index index_at(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return {};
  try {
    return index_in(path, read_checkpoint(path));
  } catch (const std::runtime_error&) {
    return {};  // It names nothing that could be lost.
  }
}

std::string shard_name(const TensorShard& shard) {
  return shard.name + "@" + std::to_string(shard.first);
}

// One tensor for all shards of a name, in order of the first.
void write_whole(const std::string& path, const RunState& state) {
  Checkpoint checkpoint{state.metadata, {}};
  std::map<std::string, std::size_t> positions;
  for (const TensorShard& shard : state.shards) {
    const auto [found, is_new] = positions.try_emplace(shard.name, checkpoint.tensors.size());
    if (is_new) {
      checkpoint.tensors.push_back({shard.name, {shard.rows, shard.cols}, {}});
      checkpoint.tensors.back().values.resize(shard.rows * shard.cols);
    }
    std::copy(shard.values.begin(), shard.values.end(),
              checkpoint.tensors[found->second].values.begin() + shard.first);
  }
  write_checkpoint(path, checkpoint);
}

void write_own_shards(const std::string& path, const RunState& state, int rank) {
  Checkpoint checkpoint{state.metadata, {}};
  for (const TensorShard& shard : state.shards) {
    if (shard.values.empty() || (shard.on_every_rank && rank != 0)) continue;
    checkpoint.tensors.push_back({shard_name(shard), {std::ssize(shard.values)}, shard.values});
  }
  write_checkpoint(path, checkpoint);
}

void write_index(const std::string& path, const std::string& set, const RunState& state,
                 int ranks) {
  Checkpoint index{state.metadata, {}};
  index.metadata["ranks"] = std::to_string(ranks);
  index.metadata["set"] = set;
  for (int r = 0; r < ranks; ++r) {
    index.metadata[checksum_key(r)] =
        read_checkpoint(file_of(path, set, r, ranks)).metadata["crc32"];
  }
  write_checkpoint(path, index);
}

void write_shared(const std::string& path, const RunState& state, Communicator& communicator) {
  const int rank = communicator.rank(), ranks = communicator.size();
  Index before = index_at(path);
  const std::string other = before.metadata["set"] == "a" ? "b" : "a";
  const std::string set = faulty("checkpoint-overwrites-the-valid-one", other, "a");
  communicator.barrier();  // Every rank has read the old index.
  write_own_shards(file_of(path, set, rank, ranks), state, rank);
  communicator.barrier();  // All files that the new index names are there.
  if (rank == 0) {
    write_index(path, set, state, ranks);
    std::error_code ignored;  // A file that cannot be removed does no harm.
    for (const std::string& file : before.files) std::filesystem::remove(file, ignored);
  }
  communicator.barrier();
}

// ---- Reading ------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const std::string& path, std::vector<TensorShard>& shards) : path_(path) {
    for (TensorShard& shard : shards) {
      wanted_[shard.name].push_back(&shard);
      missing_[shard.name] += std::ssize(shard.values);
    }
  }

  void take(const StoredTensor& tensor) {
    const std::size_t at = tensor.name.rfind('@');
    const std::string name = tensor.name.substr(0, at);
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) return;
    const std::int64_t first =
        at == std::string::npos ? 0 : std::strtoll(tensor.name.c_str() + at + 1, nullptr, 10);
    for (TensorShard* shard : found->second) {
      const bool whole = tensor.shape == std::vector<std::int64_t>{shard->rows, shard->cols};
      if (at == std::string::npos && !whole) throw std::runtime_error(wrong(name));
      copy(tensor.values, first, *shard);
    }
  }
  void end() const {
    for (const auto& [name, elements] : missing_) {
      if (elements != 0) throw std::runtime_error(wrong(name));
    }
  }

 private:
  std::string wrong(const std::string& name) const {
    return path_ + ": no tensor " + name + " of the right shape";
  }
  void copy(const std::vector<float>& from, std::int64_t first, TensorShard& to) {
    const std::int64_t begin = std::max(first, to.first);
    const std::int64_t end = std::min(first + std::ssize(from), to.first + std::ssize(to.values));
    if (begin >= end) return;
    std::copy(from.begin() + (begin - first), from.begin() + (end - first),
              to.values.begin() + (begin - to.first));
    missing_[to.name] -= end - begin;
  }
  std::string path_;
  std::map<std::string, std::vector<TensorShard*>> wanted_;
  std::map<std::string, std::int64_t> missing_;  // Elements not yet seen.
};

}  // namespace

void write_run(const std::string& path, const RunState& state, Communicator* communicator) {
  const bool whole = std::all_of(state.shards.begin(), state.shards.end(),
                                 [](const TensorShard& shard) { return shard.on_every_rank; });
  if (communicator == nullptr || communicator->size() == 1) return write_whole(path, state);
  if (!whole) return write_shared(path, state, *communicator);
  if (communicator->rank() == 0) {
    const Index before = index_at(path);
    write_whole(path, state);
    std::error_code ignored;
    for (const std::string& file : before.files) std::filesystem::remove(file, ignored);
  }
  communicator->barrier();
}

RunState read_run(const std::string& path, const Metadata& identity,
                  const std::function<std::vector<TensorShard>(const Metadata&)>& wanted) {
  const Checkpoint checkpoint = read_checkpoint(path);
  Index index = index_in(path, checkpoint);
  for (const auto& [key, want] : identity) {
    if (index.metadata[key] == want) continue;
    throw std::runtime_error(path + ": a checkpoint of another run: " + key + " is " +
                             index.metadata[key] + ", not " + want);
  }
  RunState state{index.metadata, wanted(index.metadata)};
  Reader reader(path, state.shards);
  for (std::size_t r = 0; r < index.files.size(); ++r) {
    Checkpoint shard = read_checkpoint(index.files[r]);
    if (shard.metadata["crc32"] != index.metadata[checksum_key(static_cast<int>(r))]) {
      throw std::runtime_error(index.files[r] +
                               ": damaged checkpoint: not the file that its index names");
    }
    for (const StoredTensor& tensor : shard.tensors) reader.take(tensor);
  }
  for (const StoredTensor& tensor : checkpoint.tensors) reader.take(tensor);
  reader.end();
  return state;
}

}  // namespace lockstep
