// The layout of sharded parameters: the bucket, shard and offset of every row of every parameter.
// Host only.
//
// The parameters of an FSDP unit that the passes read in the same type make one bucket: they lie
// one behind the other, and the bucket is padded so that each rank owns an equal share of whole
// rows. Embedding, final norm and head have buckets of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/parameters/parameter_list.h"
#include "kernels/core/at.h"
#include "kernels/core/contract.h"
#include "kernels/core/fp8.h"

namespace lockstep {

// Rows of a parameter that lie together in a bucket. Each element of a vector is a row.
struct Extent {
  int parameter = 0;
  std::int64_t row = 0, rows = 0;  // The first row in the parameter, and how many.
  std::int64_t width = 1;          // Elements of a row.
  std::int64_t offset = 0;  // Position of the first element in the bucket; a multiple of 128.
};

struct Bucket {
  int unit = 0;
  bool narrow = false;  // The passes read it as bf16, or as codes of that.
  bool codes = false;   // Ranks gather the codes of fp8 products.
  // Experts that lie on several ranks (parallel.expert): the bucket is cut over the ranks that have
  // the same ones, and each of these has the gradients of so many ranks.
  std::int64_t sources = 1;
  std::vector<Extent> extents;  // In order of offset.
  // Elements of each rank: the r-th of those that cut the bucket owns [r * shard, (r + 1) * shard).
  // It never cuts a row.
  std::int64_t shard = 0;

  // Bytes of an element as it is gathered.
  std::int64_t element_bytes() const {
    return static_cast<std::int64_t>(codes ? sizeof(e4m3) : narrow ? sizeof(bf16) : sizeof(float));
  }
};

// The parameters that are gathered before the first of their modules runs and released after the
// last.
struct Unit {
  // The final norm belongs to the head.
  enum class Kind : std::uint8_t { embedding, blocks, head };
  Kind kind = Kind::blocks;
  int first_layer = 0, layers = 0;  // Symbols of the pattern.
  std::vector<int> buckets = {};
  std::int64_t parameters = 0;  // Elements without padding.
};

// The rows of an extent that a rank owns: the first in the parameter, and its offset in the rank's
// shard.
struct OwnRows {
  std::int64_t row = 0, rows = 0;
  std::int64_t offset = 0;  // Elements from the start of the shard.
};

struct ShardLayout {
  // `narrow`: the run has bf16 copies. A parameter of embedding or head is cut into buckets of
  // `bucket_bytes` of fp32, in multiples of `ranks` rows. Under no_shard only gradients are
  // exchanged: a unit is a block, buckets are neither separated by type nor cut.
  // `ranks` are those of one pipeline stage, which has the units of its own pieces.
  ShardLayout(const ParameterList& list, const Scenario& scenario, int ranks, bool narrow,
              int stage = 0);

  std::vector<Unit> units;  // Embedding, the FSDP units in order, head.
  std::vector<Bucket> buckets;
  int ranks;
  bool gathers_codes;  // fp8.param_gather: of the weights that products of fp8 read.

  // The ranks that cut the bucket, and the number of a rank of the stage among those that cut its
  // bucket.
  std::int64_t ranks_of(const Bucket& bucket) const { return ranks / bucket.sources; }
  static std::int64_t number_of(const Bucket& bucket, int rank) { return rank / bucket.sources; }
  std::int64_t full(const Bucket& bucket) const { return bucket.shard * ranks_of(bucket); }
  // Elements of the gradients of all its sources, one source after the other.
  std::int64_t gradients(const Bucket& bucket) const { return full(bucket) * bucket.sources; }
  // Buckets that share a parameter are adjacent in memory. Whether this bucket continues the one
  // before it.
  bool continues(int bucket) const { return at(buckets, bucket).extents[0].row > 0; }
  // Elements of the bucket and of the buckets that continue it.
  std::int64_t run(int bucket) const;
  // The parameters of a unit: [first, end), by index.
  struct Range {
    int first, end;
  };
  Range parameters(const Unit& unit) const;
  OwnRows own(const Bucket& bucket, const Extent& extent, int rank) const;
  bool is_empty(const Bucket& bucket, int rank) const;  // The rank owns nothing but padding.

 private:
  void add_unit(const ParameterList& list, const Unit& unit, std::int64_t bucket_bytes,
                bool narrow);
  void add_bucket(Bucket bucket);
  void add_cut(const ParameterSpec& spec, std::int64_t bucket_bytes, bool narrow);
};

}  // namespace lockstep
