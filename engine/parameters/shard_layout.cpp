#include "engine/parameters/shard_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 128;  // Elements: 256 bytes of bf16, as much as products may want.

std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

Piece whole(const ParameterSpec& spec) {
  Piece piece{.parameter = spec.index, .rows = spec.norm_rows()};
  piece.width = spec.rows * spec.cols / piece.rows;
  return piece;
}

std::int64_t length(const Piece& piece) { return piece.rows * piece.width; }

// The first aligned place at `from` or behind it where ends of shards cut none of the piece's rows; nothing if there is
// none.
std::optional<std::int64_t> first_place(std::int64_t from, const Piece& piece, std::int64_t shard) {
  std::int64_t offset = rounded_up(from, kAlignment);
  for (int tries = 0; tries <= kAlignment; ++tries) {  // So many shards further everything is as before.
    const std::int64_t end = offset / shard * shard + shard;
    if (offset + length(piece) <= end) return offset;
    std::int64_t rows = (end - offset) / piece.width;  // Before that end; as many less as the alignment wants.
    const std::int64_t fewest = std::max<std::int64_t>(rows - kAlignment, 0);
    while (rows > fewest && (end - rows * piece.width) % kAlignment != 0) --rows;
    const std::int64_t place = end - rows * piece.width;
    const bool next_is_whole = place + length(piece) <= end + shard || shard % piece.width == 0;
    if (rows > fewest && next_is_whole) return place;
    offset = rounded_up(end, kAlignment);
  }
  return {};
}

// The pieces one behind the other, each at its first place. Returns where they end.
std::optional<std::int64_t> lay_out(std::vector<Piece>& pieces, std::int64_t shard) {
  std::int64_t end = 0;
  for (Piece& piece : pieces) {
    const std::optional<std::int64_t> place = first_place(end, piece, shard);
    if (!place) return {};
    piece.offset = *place;
    end = *place + length(piece);
  }
  return end;
}

// Lays the pieces out in shards of whole rows, about as small as they can be. Returns the elements of a shard. A common
// multiple of all widths will do, but may be thousands of times what is needed.
std::int64_t place(std::vector<Piece>& pieces, std::int64_t ranks) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40, kNone = std::int64_t{1} << 62;
  if (pieces.size() == 1) return (pieces[0].rows + ranks - 1) / ranks * pieces[0].width;
  const auto share = [&](std::int64_t elements) { return (elements + ranks - 1) / ranks; };
  const auto multiple = [](std::int64_t a, std::int64_t b) { return a < kFar ? std::lcm(a, b) : kFar; };
  std::int64_t common = 1, aligned = 1;
  for (const Piece& piece : pieces) {
    common = multiple(common, piece.width);
    aligned = std::lcm(aligned, std::gcd(piece.width, kAlignment));  // Else no aligned place has an end behind a row.
  }
  for (std::int64_t shard = share(*lay_out(pieces, kNone));;) {
    // What is longer than two shards has two of their ends in it, wherever it lies.
    std::int64_t step = aligned, shorter = kNone;
    for (const Piece& piece : pieces) {
      if (length(piece) <= 2 * shard) continue;
      step = multiple(step, piece.width);
      shorter = std::min(shorter, (length(piece) + 1) / 2);
    }
    const std::int64_t next = rounded_up(shard, step);
    if (next > shorter) {
      shard = shorter;
      continue;
    }
    const std::optional<std::int64_t> end = lay_out(pieces, next);
    if (end && share(*end) <= next) return next;
    const std::int64_t more = std::max(next + next / 256 + 1, share(end.value_or(0)));
    shard = std::min(more, rounded_up(next + 1, common));
  }
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
  units.back().buckets.push_back(static_cast<int>(buckets.size()));
  std::int64_t shard = place(pieces, ranks);
  if (fault("shards-cut-rows")) ++shard;
  buckets.push_back({static_cast<int>(units.size()) - 1, narrow, std::move(pieces), shard});
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
