#include "engine/parameters/shard_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "scenarios/fp8.h"
#include "scenarios/fsdp_units.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

// In elements: 256 bytes of bf16, the most that matrix products require.
constexpr std::int64_t kAlignment = 128;

std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

Extent whole(const ParameterSpec& spec) {
  Extent extent{.parameter = spec.index, .rows = spec.norm_rows()};
  extent.width = spec.rows * spec.cols / extent.rows;
  return extent;
}

std::int64_t length(const Extent& extent) { return extent.rows * extent.width; }

// The first aligned offset at or after `from` at which no end of a shard cuts a row of the extent,
// if there is one.
std::optional<std::int64_t> first_place(std::int64_t from, const Extent& extent,
                                        std::int64_t shard) {
  std::int64_t offset = rounded_up(from, kAlignment);
  for (int tries = 0; tries <= kAlignment; ++tries) {  // After so many shards the offsets repeat.
    const std::int64_t end = offset / shard * shard + shard;
    if (offset + length(extent) <= end) return offset;
    // Rows before that end, less those that the alignment costs.
    std::int64_t rows = (end - offset) / extent.width;
    const std::int64_t fewest = std::max<std::int64_t>(rows - kAlignment, 0);
    while (rows > fewest && (end - rows * extent.width) % kAlignment != 0) --rows;
    const std::int64_t place = end - rows * extent.width;
    const bool next_is_whole = place + length(extent) <= end + shard || shard % extent.width == 0;
    if (rows > fewest && next_is_whole) return place;
    offset = rounded_up(end, kAlignment);
  }
  return {};
}

// Puts the extents one after the other, each at its first possible offset. Returns the end of the
// last.
std::optional<std::int64_t> lay_out(std::vector<Extent>& extents, std::int64_t shard) {
  std::int64_t end = 0;
  for (Extent& extent : extents) {
    const std::optional<std::int64_t> place = first_place(end, extent, shard);
    if (!place) return {};
    extent.offset = *place;
    end = *place + length(extent);
  }
  return end;
}

// Lays the extents out in shards of whole rows, nearly as small as possible. Returns the elements
// of a shard. A common multiple of all widths is always enough, but may be thousands of times
// larger than needed.
std::int64_t place(std::vector<Extent>& extents, std::int64_t ranks) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40, kNone = std::int64_t{1} << 62;
  if (extents.size() == 1) return (extents[0].rows + ranks - 1) / ranks * extents[0].width;
  const auto share = [&](std::int64_t elements) { return (elements + ranks - 1) / ranks; };
  const auto multiple = [](std::int64_t a, std::int64_t b) {
    return a < kFar ? std::lcm(a, b) : kFar;
  };
  std::int64_t common = 1, aligned = 1;
  for (const Extent& extent : extents) {
    common = multiple(common, extent.width);
    // Otherwise no aligned offset ends at the end of a row.
    aligned = std::lcm(aligned, std::gcd(extent.width, kAlignment));
  }
  for (std::int64_t shard = share(*lay_out(extents, kNone));;) {
    // An extent longer than two shards contains two ends of shards at any offset.
    std::int64_t step = aligned, shorter = kNone;
    for (const Extent& extent : extents) {
      if (length(extent) <= 2 * shard) continue;
      step = multiple(step, extent.width);
      shorter = std::min(shorter, (length(extent) + 1) / 2);
    }
    const std::int64_t next = rounded_up(shard, step);
    if (next > shorter) {
      shard = shorter;
      continue;
    }
    const std::optional<std::int64_t> end = lay_out(extents, next);
    if (end && share(*end) <= next) return next;
    const std::int64_t more = std::max(next + next / 256 + 1, share(end.value_or(0)));
    shard = std::min(more, rounded_up(next + 1, common));
  }
}

}  // namespace

ShardLayout::ShardLayout(const ParameterList& list, const Scenario& scenario, int ranks,
                         bool narrow, int stage)
    : ranks(ranks), gathers_codes(gathers_fp8_codes(scenario)) {
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  const bool sharded = scenario.fsdp.strategy != Sharding::no_shard;
  const Scenario::Fsdp fsdp = sharded ? scenario.fsdp : Scenario::Fsdp{};
  narrow = narrow && sharded;
  const std::vector<std::int64_t> stages = stages_of_layers(scenario);
  if (stage == stages.front())
    add_unit(list, {.kind = Unit::Kind::embedding}, fsdp.bucket_bytes, narrow);
  Scenario cut = scenario;
  cut.fsdp = fsdp;
  std::size_t block = 0;
  for (const std::int64_t count : blocks_of_units(cut)) {
    Unit unit{.first_layer = blocks[block].first};
    for (std::int64_t b = 0; b < count && block < blocks.size(); ++b, ++block)
      unit.layers += blocks[block].count;
    if (at(stages, unit.first_layer) == stage) add_unit(list, unit, 0, narrow);
  }
  if (stage == stages.back()) add_unit(list, {.kind = Unit::Kind::head}, fsdp.bucket_bytes, narrow);
}

void ShardLayout::add_unit(const ParameterList& list, const Unit& unit, std::int64_t bucket_bytes,
                           bool narrow) {
  units.push_back(unit);
  const ParameterSpec& gain = at(list.specs, list.final_gain);
  if (unit.kind == Unit::Kind::embedding) return add_cut(list.specs[0], bucket_bytes, narrow);
  if (unit.kind == Unit::Kind::head) {
    add_bucket({.extents = {whole(gain)}});
    units.back().parameters = gain.cols;
    if (list.head != 0) add_cut(at(list.specs, list.head), bucket_bytes, narrow);
    return;
  }
  std::vector<Extent> wide, copied, codes, experts;
  std::int64_t sources = 1;
  for (const ParameterSpec& spec : list.specs) {
    if (spec.layer < unit.first_layer || spec.layer >= unit.first_layer + unit.layers) continue;
    const bool of_fp8 = gathers_codes && spec.fp8_layer;
    units.back().parameters += spec.all_rows() * spec.cols;
    if (spec.place.ranks > 1) {
      experts.push_back(whole(spec));
      sources = spec.place.ranks;
      continue;
    }
    (of_fp8 ? codes : narrow && spec.copied ? copied : wide).push_back(whole(spec));
  }
  add_bucket({.extents = std::move(wide)});
  if (!copied.empty()) add_bucket({.narrow = true, .extents = std::move(copied)});
  if (!codes.empty()) add_bucket({.narrow = true, .codes = true, .extents = std::move(codes)});
  if (!experts.empty()) {
    add_bucket({.narrow = narrow,
                .codes = gathers_codes,
                .sources = sources,
                .extents = std::move(experts)});
  }
}

// Cuts one parameter into adjacent buckets without padding between them.
void ShardLayout::add_cut(const ParameterSpec& spec, std::int64_t bucket_bytes, bool narrow) {
  const std::int64_t row_bytes = spec.cols * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t limit = faulty("bucket-below-its-bytes", bucket_bytes, bucket_bytes - 1);
  std::int64_t rows = std::max<std::int64_t>(limit / (row_bytes * ranks), 1) * ranks;
  if (bucket_bytes == 0) rows = spec.rows;
  for (std::int64_t first = 0; first < spec.rows; first += rows) {
    Extent extent = whole(spec);
    extent.row = first;
    extent.rows = std::min(rows, spec.rows - first);
    add_bucket({.narrow = narrow && spec.copied, .extents = {extent}});
  }
  units.back().parameters += spec.rows * spec.cols;
}

void ShardLayout::add_bucket(Bucket bucket) {
  units.back().buckets.push_back(static_cast<int>(buckets.size()));
  const std::int64_t whole_rows = place(bucket.extents, ranks_of(bucket));
  bucket.unit = static_cast<int>(units.size()) - 1;
  bucket.shard = faulty("shards-cut-rows", whole_rows, whole_rows + 1);
  buckets.push_back(std::move(bucket));
}

std::int64_t ShardLayout::run(int bucket) const {
  std::int64_t elements = full(at(buckets, bucket));
  for (int next = bucket + 1; next < static_cast<int>(buckets.size()) && continues(next); ++next) {
    elements += full(at(buckets, next));
  }
  return elements;
}

ShardLayout::Range ShardLayout::parameters(const Unit& unit) const {
  Range range{std::numeric_limits<int>::max(), 0};
  for (const int bucket : unit.buckets) {
    for (const Extent& extent : at(buckets, bucket).extents) {
      range = {std::min(range.first, extent.parameter), std::max(range.end, extent.parameter + 1)};
    }
  }
  return range;
}

OwnRows ShardLayout::own(const Bucket& bucket, const Extent& extent, int rank) const {
  const std::int64_t shard = bucket.shard * number_of(bucket, rank);
  const std::int64_t begin = std::max(shard, extent.offset);
  const std::int64_t end =
      std::min(shard + bucket.shard, extent.offset + extent.rows * extent.width);
  if (begin >= end) return {.row = extent.row};
  return {.row = extent.row + (begin - extent.offset) / extent.width,
          .rows = (end - begin) / extent.width,
          .offset = begin - shard};
}

bool ShardLayout::is_empty(const Bucket& bucket, int rank) const {
  return std::all_of(bucket.extents.begin(), bucket.extents.end(),
                     [&](const Extent& extent) { return own(bucket, extent, rank).rows == 0; });
}

}  // namespace lockstep
