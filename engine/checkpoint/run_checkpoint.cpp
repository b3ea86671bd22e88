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

// Two sets of files take turns, so that a new checkpoint does not write what the valid one needs.
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

// What an index names; none for a file that is not one, or is not there.
struct Index {
  Metadata metadata;
  std::vector<std::string> files;
};
Index index_in(const std::string& path, const Checkpoint& checkpoint) {
  Index index{checkpoint.metadata, {}};
  const auto ranks = index.metadata.find("ranks");
  if (ranks == index.metadata.end()) return index;
  const int count = number(path, ranks->second);
  for (int r = 0; r < count; ++r) index.files.push_back(file_of(path, index.metadata["set"], r, count));
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

std::string part_name(const StatePart& part) { return part.name + "@" + std::to_string(part.first); }

// One tensor for all parts of a name, in order of the first.
void write_whole(const std::string& path, const RunState& state) {
  Checkpoint checkpoint{state.metadata, {}};
  std::map<std::string, std::size_t> place;
  for (const StatePart& part : state.parts) {
    const auto [found, is_new] = place.try_emplace(part.name, checkpoint.tensors.size());
    if (is_new) {
      checkpoint.tensors.push_back({part.name, {part.rows, part.cols}, {}});
      checkpoint.tensors.back().values.resize(static_cast<std::size_t>(part.rows * part.cols));
    }
    std::copy(part.values.begin(), part.values.end(), checkpoint.tensors[found->second].values.begin() + part.first);
  }
  write_checkpoint(path, checkpoint);
}

void write_own_parts(const std::string& path, const RunState& state, int rank) {
  Checkpoint checkpoint{state.metadata, {}};
  for (const StatePart& part : state.parts) {
    if (part.values.empty() || (part.on_every_rank && rank != 0)) continue;
    checkpoint.tensors.push_back({part_name(part), {std::ssize(part.values)}, part.values});
  }
  write_checkpoint(path, checkpoint);
}

void write_index(const std::string& path, const std::string& set, const RunState& state, int ranks) {
  Checkpoint index{state.metadata, {}};
  index.metadata["ranks"] = std::to_string(ranks);
  index.metadata["set"] = set;
  for (int r = 0; r < ranks; ++r) {
    index.metadata[checksum_key(r)] = read_checkpoint(file_of(path, set, r, ranks)).metadata["crc32"];
  }
  write_checkpoint(path, index);
}

void write_shared(const std::string& path, const RunState& state, Communicator& communicator) {
  const int rank = communicator.rank(), ranks = communicator.size();
  Index before = index_at(path);
  const std::string set = before.metadata["set"] == "a" && !fault("checkpoint-overwrites-the-valid-one") ? "b" : "a";
  communicator.meet();  // Everyone has read the index before.
  write_own_parts(file_of(path, set, rank, ranks), state, rank);
  communicator.meet();  // Everything that the new index names is there.
  if (rank == 0) {
    write_index(path, set, state, ranks);
    std::error_code ignored;  // What cannot be removed harms nobody.
    for (const std::string& file : before.files) std::filesystem::remove(file, ignored);
  }
  communicator.meet();
}

// ---- Reading --------------------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const std::string& path, std::vector<StatePart>& parts) : path_(path) {
    for (StatePart& part : parts) {
      wanted_[part.name].push_back(&part);
      missing_[part.name] += std::ssize(part.values);
    }
  }

  void take(const StoredTensor& tensor) {
    const std::size_t at = tensor.name.rfind('@');
    const std::string name = tensor.name.substr(0, at);
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) return;
    const std::int64_t first = at == std::string::npos ? 0 : std::strtoll(tensor.name.c_str() + at + 1, nullptr, 10);
    for (StatePart* part : found->second) {
      const bool whole = tensor.shape == std::vector<std::int64_t>{part->rows, part->cols};
      if (at == std::string::npos && !whole) throw std::runtime_error(wrong(name));
      copy(tensor.values, first, *part);
    }
  }
  void end() const {
    for (const auto& [name, elements] : missing_) {
      if (elements != 0) throw std::runtime_error(wrong(name));
    }
  }

 private:
  std::string wrong(const std::string& name) const { return path_ + ": no tensor " + name + " of the right shape"; }
  void copy(const std::vector<float>& from, std::int64_t first, StatePart& to) {
    const std::int64_t begin = std::max(first, to.first);
    const std::int64_t end = std::min(first + std::ssize(from), to.first + std::ssize(to.values));
    if (begin >= end) return;
    std::copy(from.begin() + (begin - first), from.begin() + (end - first), to.values.begin() + (begin - to.first));
    missing_[to.name] -= end - begin;
  }
  std::string path_;
  std::map<std::string, std::vector<StatePart*>> wanted_;
  std::map<std::string, std::int64_t> missing_;  // Elements not yet seen.
};

}  // namespace

void write_run(const std::string& path, const RunState& state, Communicator* communicator) {
  const bool whole =
      std::all_of(state.parts.begin(), state.parts.end(), [](const StatePart& part) { return part.on_every_rank; });
  if (communicator == nullptr || communicator->size() == 1) return write_whole(path, state);
  if (!whole) return write_shared(path, state, *communicator);
  if (communicator->rank() == 0) {
    const Index before = index_at(path);
    write_whole(path, state);
    std::error_code ignored;
    for (const std::string& file : before.files) std::filesystem::remove(file, ignored);
  }
  communicator->meet();
}

RunState read_run(const std::string& path, const Metadata& identity,
                  const std::function<std::vector<StatePart>(const Metadata&)>& wanted) {
  const Checkpoint checkpoint = read_checkpoint(path);
  Index index = index_in(path, checkpoint);
  for (const auto& [key, want] : identity) {
    if (index.metadata[key] == want) continue;
    throw std::runtime_error(path + ": a checkpoint of another run: " + key + " is " + index.metadata[key] + ", not " +
                             want);
  }
  RunState state{index.metadata, wanted(index.metadata)};
  Reader reader(path, state.parts);
  for (std::size_t r = 0; r < index.files.size(); ++r) {
    Checkpoint part = read_checkpoint(index.files[r]);
    if (part.metadata["crc32"] != index.metadata[checksum_key(static_cast<int>(r))]) {
      throw std::runtime_error(index.files[r] + ": damaged checkpoint: not the file that its index names");
    }
    for (const StoredTensor& tensor : part.tensors) reader.take(tensor);
  }
  for (const StoredTensor& tensor : checkpoint.tensors) reader.take(tensor);
  reader.end();
  return state;
}

}  // namespace lockstep
