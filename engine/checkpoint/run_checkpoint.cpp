#include "engine/checkpoint/run_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "kernels/core/fault.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// As many as parallel.data allows. An index that names more would make us build, and look for,
// billions of names.
constexpr int kMostRanks = 64;

// Two sets of files alternate, so that a new checkpoint does not overwrite files of the valid one.
bool is_set(const std::string& set) { return set == "a" || set == "b"; }
std::string file_of(const std::string& path, const std::string& set, int rank, int ranks) {
  char suffix[48];
  std::snprintf(suffix, sizeof(suffix), ".rank-%04d-of-%04d", rank, ranks);
  return path + "." + set + suffix;
}
std::string checksum_key(int rank) { return "checksum of rank " + std::to_string(rank); }

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  // One spelling of each, so that no two names mean one place.
  if (!whole || value < 0 || std::to_string(value) != text) return std::nullopt;
  return value;
}

std::string value_in(const Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

bool is_of(const Metadata& metadata, const Metadata& identity) {
  return std::all_of(identity.begin(), identity.end(), [&](const auto& wanted) {
    return value_in(metadata, wanted.first) == wanted.second;
  });
}

// The set of the files that an index names, and the files: always files beside it, of its own name,
// whatever it says. None where the checkpoint is one file.
struct Index {
  std::string set;
  std::vector<std::string> files;
};
Index index_in(const CheckpointFile& file) {
  const std::string ranks = value_in(file.metadata(), "ranks");
  if (!file.metadata().contains("ranks")) return {};
  const std::string no_index = file.path() + ": not an index of a checkpoint: ";
  const std::optional<std::int64_t> count = number(ranks);
  if (!count || *count < 1 || *count > kMostRanks)
    throw CheckpointRefused(no_index + "ranks is " + shown(ranks) + ", not 1 to 64");
  Index index{value_in(file.metadata(), "set"), {}};
  if (!is_set(index.set)) throw CheckpointRefused(no_index + "its set is neither a nor b");
  for (int r = 0; r < *count; ++r)
    index.files.push_back(file_of(file.path(), index.set, r, static_cast<int>(*count)));
  return index;
}

// What a new checkpoint at this path replaces.
struct Before {
  std::string set;                 // That must stay valid until the new index is there.
  std::vector<std::string> files;  // To remove afterwards: those of this run.
};
Before before_at(const std::string& path, const Metadata& identity) {
  try {
    const CheckpointFile file(path);
    const Index index = index_in(file);
    if (!is_of(file.metadata(), identity)) return {index.set, {}};
    return {index.set, index.files};
  } catch (const std::runtime_error&) {
    return {};  // It names nothing that could be lost.
  }
}

// A file is removed only if it is what the index says: an index is a file that anybody can write.
// One that cannot be removed does no harm.
void remove_files(const Before& before, const Metadata& identity) {
  for (const std::string& name : before.files) {
    try {
      if (!is_of(CheckpointFile(name).metadata(), identity)) continue;
    } catch (const std::runtime_error&) {
      continue;
    }
    ::unlink(name.c_str());
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
    const CheckpointFile file(file_of(path, set, r, ranks));
    file.read([](const StoredEntry&, std::int64_t, std::span<const float>) {});  // It is whole.
    index.metadata[checksum_key(r)] = value_in(file.metadata(), "crc32");
  }
  write_checkpoint(path, index);
}

void write_shared(const std::string& path, const Metadata& identity, const RunState& state,
                  Communicator& communicator) {
  const int rank = communicator.rank(), ranks = communicator.size();
  const Before before = before_at(path, identity);
  const std::string other = before.set == "a" ? "b" : "a";
  const std::string set = faulty("checkpoint-overwrites-the-valid-one", other, "a");
  communicator.barrier();  // Every rank has read the old index.
  write_own_shards(file_of(path, set, rank, ranks), state, rank);
  communicator.barrier();  // All files that the new index names are there.
  if (rank == 0) {
    write_index(path, set, state, ranks);
    remove_files(before, identity);
  }
  communicator.barrier();
}

// ---- Reading ------------------------------------------------------------------------------------

// Where the values of an entry lie in its tensor.
struct Part {
  std::string name;        // The tensor's name.
  std::int64_t first = 0;  // Element of it.
  bool whole = false;      // The entry is the tensor itself.
};
Part part_of(const std::string& path, const StoredEntry& entry) {
  const std::size_t at = entry.name.rfind('@');
  if (at == std::string::npos) return {entry.name, 0, true};
  const std::optional<std::int64_t> first = number(std::string_view(entry.name).substr(at + 1));
  if (!first)
    throw CheckpointRefused(path + ": not a checkpoint: " + entry.name + " begins nowhere");
  return {entry.name.substr(0, at), *first, false};
}

class Reader {
 public:
  Reader(std::string path, std::vector<TensorShard>& shards) : path_(std::move(path)) {
    for (TensorShard& shard : shards) wanted_[shard.name].push_back(&shard);
  }

  // Before any value is read: the entries of the files have the shapes of what is wanted, and the
  // parts of each tensor cover it exactly once. Counting elements alone would take the first half
  // twice for a whole.
  void add(const CheckpointFile& file) {
    for (const StoredEntry& entry : file.entries()) {
      const Part part = part_of(file.path(), entry);
      const auto found = wanted_.find(part.name);
      if (found == wanted_.end()) continue;
      const TensorShard& one = *found->second.front();
      const std::vector<std::int64_t> shape{one.rows, one.cols};
      const bool fits = part.whole ? entry.shape == shape : entry.shape.size() == 1;
      if (!fits) throw CheckpointRefused(wrong(part.name));
      if (entry.count == 0) continue;
      parts_[part.name].emplace_back(part.first, entry.count);
    }
  }
  void require_whole() {
    for (const auto& [name, shards] : wanted_) {
      const auto all = static_cast<std::uint64_t>(shards.front()->rows * shards.front()->cols);
      auto& parts = parts_[name];
      std::sort(parts.begin(), parts.end());
      std::uint64_t covered = 0;
      for (const auto& [first, count] : parts) {
        if (first != covered || count > all - covered) throw CheckpointRefused(wrong(name));
        covered += count;
      }
      if (covered != all) throw CheckpointRefused(wrong(name));
    }
  }

  void read(const CheckpointFile& file) {
    file.read([&](const StoredEntry& entry, std::int64_t first, std::span<const float> values) {
      const Part part = part_of(file.path(), entry);
      const auto found = wanted_.find(part.name);
      if (found == wanted_.end()) return;
      for (TensorShard* shard : found->second) copy(values, part.first + first, *shard);
    });
  }

 private:
  std::string wrong(const std::string& name) const {
    return path_ + ": no tensor " + name + " of the right shape";
  }
  static void copy(std::span<const float> from, std::int64_t first, TensorShard& to) {
    const std::int64_t begin = std::max(first, to.first);
    const std::int64_t end = std::min(first + std::ssize(from), to.first + std::ssize(to.values));
    if (begin >= end) return;
    std::copy(from.begin() + (begin - first), from.begin() + (end - first),
              to.values.begin() + (begin - to.first));
  }
  std::string path_;
  std::map<std::string, std::vector<TensorShard*>> wanted_;
  std::map<std::string, std::vector<std::pair<std::uint64_t, std::uint64_t>>> parts_;
};

}  // namespace

void write_run(const std::string& path, const Metadata& identity, const RunState& state,
               Communicator* communicator) {
  const bool whole = std::all_of(state.shards.begin(), state.shards.end(),
                                 [](const TensorShard& shard) { return shard.on_every_rank; });
  if (communicator == nullptr || communicator->size() == 1) return write_whole(path, state);
  if (!whole) return write_shared(path, identity, state, *communicator);
  if (communicator->rank() == 0) {
    const Before before = before_at(path, identity);
    write_whole(path, state);
    remove_files(before, identity);
  }
  communicator->barrier();
}

RunState read_run(const std::string& path, const Metadata& identity,
                  const std::function<std::vector<TensorShard>(const Metadata&)>& wanted) {
  const CheckpointFile head(path);
  for (const auto& [key, want] : identity) {
    const std::string is = value_in(head.metadata(), key);
    if (is == want) continue;
    throw CheckpointRefused(shown(path) + ": a checkpoint of another run: " + key + " is " +
                            shown(is) + ", not " + want);
  }
  const Index index = index_in(head);
  std::deque<CheckpointFile> files;  // Open until the end, so that what is judged is what is read.
  for (std::size_t r = 0; r < index.files.size(); ++r) {
    const CheckpointFile& file = files.emplace_back(index.files[r]);
    const std::string named = value_in(head.metadata(), checksum_key(static_cast<int>(r)));
    if (value_in(file.metadata(), "crc32") == named) continue;
    throw CheckpointRefused(file.path() +
                            ": damaged checkpoint: not the file that its index names");
  }
  RunState state{head.metadata(), wanted(head.metadata())};
  Reader reader(path, state.shards);
  reader.add(head);
  for (const CheckpointFile& file : files) reader.add(file);
  reader.require_whole();
  for (const CheckpointFile& file : files) reader.read(file);
  reader.read(head);
  return state;
}

}  // namespace lockstep
