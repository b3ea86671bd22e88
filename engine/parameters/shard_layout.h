// Where every row of every parameter lies when parameters are sharded. Host only.
//
// The parameters of an FSDP unit that the passes read in the same type make one bucket: they lie one behind the other,
// and the bucket is padded so that each rank owns an equal share of whole rows. Embedding, final norm and head have
// buckets of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/parameters/parameter_list.h"

namespace lockstep {

// Rows of a parameter that lie together in a bucket. Of a vector each element is a row.
struct Piece {
  int parameter = 0;
  std::int64_t row = 0, rows = 0;  // The first of them in the parameter, and how many.
  std::int64_t width = 1;          // Elements of a row.
  std::int64_t offset = 0;         // Of the first element in the bucket; a multiple of 128.
};

struct Bucket {
  int unit = 0;
  bool narrow = false;        // The passes read it as bf16.
  std::vector<Piece> pieces;  // In order of offset.
  std::int64_t shard = 0;     // Elements of a rank: rank r owns [r * shard, (r + 1) * shard). Never cuts a row.
};

// What is gathered before its first module runs and released behind its last one.
struct Unit {
  enum class Kind : std::uint8_t { embedding, blocks, head };  // The final norm belongs to the head.
  Kind kind = Kind::blocks;
  int first_layer = 0, layers = 0;  // Symbols of the pattern.
  std::vector<int> buckets = {};
  std::int64_t parameters = 0;  // Elements without padding.
};

// The rows of a piece that a rank owns: their first in the parameter, their place in the rank's shard.
struct OwnRows {
  std::int64_t row = 0, rows = 0;
  std::int64_t offset = 0;  // Elements from the start of the shard.
};

struct ShardLayout {
  // `narrow`: the run has bf16 copies. Cut buckets have `bucket_bytes` of fp32, in multiples of `ranks` rows. Under
  // no_shard nothing is gathered but gradients: a unit is a block, and nothing is told apart or cut.
  ShardLayout(const ParameterList& list, const Scenario& scenario, int ranks, bool narrow);

  std::vector<Unit> units;  // Embedding, the FSDP units in order, head.
  std::vector<Bucket> buckets;
  int ranks;

  std::int64_t full(const Bucket& bucket) const { return bucket.shard * ranks; }
  // Buckets that share a parameter lie one behind the other, so that it is whole: does this one follow another so?
  bool continues(int bucket) const { return buckets[static_cast<std::size_t>(bucket)].pieces[0].row > 0; }
  // Elements of the bucket and of those that continue it.
  std::int64_t run(int bucket) const;
  // The parameters of a unit: [first, end), by index.
  struct Range {
    int first, end;
  };
  Range parameters(const Unit& unit) const;
  OwnRows own(const Bucket& bucket, const Piece& piece, int rank) const;
  bool is_empty(const Bucket& bucket, int rank) const;  // The rank owns padding at most.

 private:
  void add_unit(const ParameterList& list, const Unit& unit, std::int64_t bucket_bytes, bool narrow);
  void add_bucket(std::vector<Piece> pieces, bool narrow);
  void add_cut(const ParameterSpec& spec, std::int64_t bucket_bytes, bool narrow);
};

}  // namespace lockstep
