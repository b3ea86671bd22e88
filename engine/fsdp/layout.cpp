#include "engine/fsdp/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/fault.h"
#include "kernels/require.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 128;  // Elements: 256 bytes of bf16, as much as products may want.

std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

Piece whole(const ParameterSpec& spec) {
  Piece piece{.parameter = spec.index, .rows = spec.norm_rows()};
  piece.width = spec.rows * spec.cols / piece.rows;
  return piece;
}

}  // namespace

ShardLayout::ShardLayout(const ParameterList& list, const Scenario& scenario, int ranks, bool narrow) : ranks(ranks) {
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  const bool sharded = scenario.fsdp.strategy != Sharding::no_shard;
  const Scenario::Fsdp fsdp = sharded ? scenario.fsdp : Scenario::Fsdp{};
  narrow = narrow && sharded;
  add_unit(list, {.kind = Unit::Kind::embedding}, fsdp.bucket_bytes, narrow);
  std::size_t block = 0;
  for (std::size_t u = 0; block < blocks.size(); ++u) {
    Unit unit{.first_layer = blocks[block].first};
    const std::int64_t count = fsdp.unit_is_list ? fsdp.unit.at(u) : fsdp.unit[0];
    for (std::int64_t b = 0; b < count && block < blocks.size(); ++b, ++block) unit.layers += blocks[block].count;
    add_unit(list, unit, 0, narrow);
  }
  add_unit(list, {.kind = Unit::Kind::head}, fsdp.bucket_bytes, narrow);
}

void ShardLayout::add_unit(const ParameterList& list, const Unit& unit, std::int64_t bucket_bytes, bool narrow) {
  units.push_back(unit);
  const ParameterSpec& gain = list.specs[static_cast<std::size_t>(list.final_gain)];
  if (unit.kind == Unit::Kind::embedding) return add_cut(list.specs[0], bucket_bytes, narrow);
  if (unit.kind == Unit::Kind::head) {
    add_bucket({whole(gain)}, false);
    units.back().parameters = gain.cols;
    if (list.head != 0) add_cut(list.specs[static_cast<std::size_t>(list.head)], bucket_bytes, narrow);
    return;
  }
  std::vector<Piece> wide, copied;
  for (const ParameterSpec& spec : list.specs) {
    if (spec.layer < unit.first_layer || spec.layer >= unit.first_layer + unit.layers) continue;
    (narrow && spec.copied ? copied : wide).push_back(whole(spec));
    units.back().parameters += spec.rows * spec.cols;
  }
  add_bucket(std::move(wide), false);
  if (!copied.empty()) add_bucket(std::move(copied), true);
}

// One parameter in buckets that lie one behind the other without padding between them.
void ShardLayout::add_cut(const ParameterSpec& spec, std::int64_t bucket_bytes, bool narrow) {
  const std::int64_t row_bytes = spec.cols * static_cast<std::int64_t>(sizeof(float));
  std::int64_t rows =
      std::max<std::int64_t>((bucket_bytes - fault("bucket-below-its-bytes")) / (row_bytes * ranks), 1) * ranks;
  if (bucket_bytes == 0) rows = spec.rows;
  for (std::int64_t first = 0; first < spec.rows; first += rows) {
    Piece piece = whole(spec);
    piece.row = first;
    piece.rows = std::min(rows, spec.rows - first);
    add_bucket({piece}, narrow && spec.copied);
  }
  units.back().parameters += spec.rows * spec.cols;
}

void ShardLayout::add_bucket(std::vector<Piece> pieces, bool narrow) {
  std::int64_t end = 0, step = 1;
  for (Piece& piece : pieces) {
    piece.offset = rounded_up(end, std::lcm(piece.width, kAlignment));
    end = piece.offset + piece.rows * piece.width;
    step = fault("shards-cut-rows") ? std::max(step, piece.width) : std::lcm(step, piece.width);
    require(step > 0 && step < std::int64_t{1} << 40, "the rows of a bucket have a common multiple of a sane size");
  }
  units.back().buckets.push_back(static_cast<int>(buckets.size()));
  buckets.push_back({.unit = static_cast<int>(units.size()) - 1,
                     .narrow = narrow,
                     .pieces = std::move(pieces),
                     .shard = rounded_up((end + ranks - 1) / ranks, step)});
}

std::int64_t ShardLayout::run(int bucket) const {
  std::int64_t elements = full(buckets[static_cast<std::size_t>(bucket)]);
  for (int next = bucket + 1; next < static_cast<int>(buckets.size()) && continues(next); ++next) {
    elements += full(buckets[static_cast<std::size_t>(next)]);
  }
  return elements;
}

ShardLayout::Range ShardLayout::parameters(const Unit& unit) const {
  Range range{std::numeric_limits<int>::max(), 0};
  for (const int bucket : unit.buckets) {
    for (const Piece& piece : buckets[static_cast<std::size_t>(bucket)].pieces) {
      range = {std::min(range.first, piece.parameter), std::max(range.end, piece.parameter + 1)};
    }
  }
  return range;
}

OwnRows ShardLayout::own(const Bucket& bucket, const Piece& piece, int rank) const {
  const std::int64_t begin = std::max(bucket.shard * rank, piece.offset);
  const std::int64_t end = std::min(bucket.shard * (rank + 1), piece.offset + piece.rows * piece.width);
  if (begin >= end) return {.row = piece.row};
  return {.row = piece.row + (begin - piece.offset) / piece.width,
          .rows = (end - begin) / piece.width,
          .offset = begin - bucket.shard * rank};
}

bool ShardLayout::is_empty(const Bucket& bucket, int rank) const {
  return std::all_of(bucket.pieces.begin(), bucket.pieces.end(),
                     [&](const Piece& piece) { return own(bucket, piece, rank).rows == 0; });
}

}  // namespace lockstep
