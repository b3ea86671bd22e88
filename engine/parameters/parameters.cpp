#include "engine/parameters/parameters.h"

#include <algorithm>
#include <utility>

#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/initialize.h"
#include "kernels/ops/optimizer.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

template <class T>
Tensor<T> shape_of(const ParameterSpec& spec, T* data = nullptr) {
  return tensor(data, spec.rows, spec.cols);
}

// A tensor of `rows` rows of a parameter; for a vector, of so many elements.
template <class T>
Tensor<T> some_rows(const ParameterSpec& spec, T* data, std::int64_t rows) {
  return spec.is_vector ? tensor(data, 1, rows) : tensor(data, rows, spec.cols);
}

std::uint32_t high_half(std::int64_t seed) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed) >> 32);
}

// By layer, from -1: whether partial graphs hold a part of it. They serve every microbatch of a
// slot.
std::vector<bool> layers_in_regions(const Scenario& scenario) {
  std::vector<bool> list(scenario.model.pattern.size() + 1);
  for (const Segment& segment : segments(scenario)) {
    if (segment.region < 0) continue;
    for (const Part& part : segment.parts) list[part.layer + 1] = true;
  }
  return list;
}

template <class T>
void clear(const Stream& stream, const Tensor<T>& x) {
  if (x) stream.fill(x.data, 0, static_cast<std::size_t>(x.size()) * sizeof(T));
}

}  // namespace

Parameter Parameter::of_source(std::int64_t source) const {
  Parameter of = *this;
  const std::int64_t apart = faulty("sources-share-an-accumulator", gradient_stride, 0);
  if (gradient) of.gradient.data += source * apart;
  if (microbatch_gradient) of.microbatch_gradient.data += source * microbatch_stride;
  return of;
}

Fp8Delayed Fp8Delayed::of_experts(std::int64_t first, std::int64_t count) const {
  if (!pending) return {};
  return {pending.columns(first, count),
          tensor(history.data + first * history.pitch, count, history.cols),
          exponent.columns(first, count)};
}

void quantise(const Stream& stream, const Parameter& weight, CodesFor passes,
              const ExponentRule& rule) {
  const Fp8Weight& to = weight.fp8;
  const Fp8Delayed delayed = to.own(to.delayed);
  const bool forward = passes != CodesFor::backward_pass,
             backward = passes != CodesFor::forward_pass;
  if (forward) {
    if (rule.measures && !backward) stream.submit(Fp8ClearAmax{.amax = to.amax});
    if (rule.measures) stream.submit(Fp8Amax{.x = weight.copy, .amax = to.amax});
    Fp8Exponent<e4m3> op{.k = to.exponent, .scale = to.scale};
    if (rule.measures) op.amax = to.amax, op.pending = delayed.pending;
    if (rule.holds) op.held = delayed.exponent;
    stream.submit(op);
  }
  const Tensor<e4m3> none;
  stream.submit(Fp8Cast<e4m3>{.x = weight.copy,
                              .k = to.exponent,
                              .codes = forward ? to.codes : none,
                              .transposed = backward ? to.transposed : none});
  Device& device = stream.device();
  device.count(stream, device.counters.of(device.place.rank).weight_casts);
}

void transpose_codes(const Stream& stream, const Parameter& weight) {
  const Fp8Weight& fp8 = weight.fp8;
  stream.submit(Fp8Transpose{.codes = fp8.codes,
                             .transposed = fp8.transposed,
                             .rows = weight.copy.rows / fp8.experts,
                             .cols = weight.copy.cols,
                             .matrices = fp8.experts});
}

Parameters::Parameters(TensorPool& pool, TensorPool& exchanged, const Scenario& scenario,
                       bool copies, const ShardLayout* layout, int rank, int stage)
    : list_(scenario.model, expert_place(scenario, rank)),
      layout_(layout),
      strategy_(scenario.fsdp.strategy),
      library_sums_(scenario.fsdp.reduction == Reduction::nccl),
      rank_(rank),
      copies_(copies),
      seed_low_(static_cast<std::uint32_t>(scenario.training.seed)),
      seed_high_(faulty("seed-cut-to-32-bits", high_half(scenario.training.seed), 0)),
      stage_(stage),
      tied_(scenario.model.tied_embedding),
      stages_(stages_of_layers(scenario)),
      in_region_(layers_in_regions(scenario)) {
  for (const ParameterSpec& spec : list_.specs) {
    parameters_.push_back({.index = spec.index,
                           .weight = shape_of<float>(spec),
                           .copy = shape_of<bf16>(spec),
                           .gradient = shape_of<float>(spec),
                           .microbatch_gradient = shape_of<float>(spec)});
    parameters_.back().sources = spec.place.ranks;
    if (!has(spec)) continue;
    if (strategy_ == Sharding::no_shard) make_whole(pool, spec);
    if (!multiplies_fp8(scenario) || !spec.fp8_layer) continue;
    parameters_.back().fp8 = make_codes(pool, spec);
    parameters_.back().fp8.cached = scenario.fp8.weight_cache;
  }
  if (copies_tied_weight()) make_tied_copy(pool);
  if (parts_tied_gradient(scenario))
    head_gradient_ = pool.make<float>(list_.specs.front().rows, list_.specs.front().cols);
  const bool delayed = multiplies_fp8(scenario) && scenario.fp8.recipe == Fp8Recipe::delayed;
  const int buckets = layout_ == nullptr ? 0 : static_cast<int>(layout_->buckets.size());
  exchanged.reserve(exchanged_bytes(delayed));
  if (delayed) make_scaling(pool, exchanged, scenario.fp8.history);
  if (layout_ != nullptr && layout_->gathers_codes) make_gathered_codes(pool, exchanged);
  for (int b = 0; b < buckets; ++b) make_bucket(pool, exchanged, b);
  std::stable_sort(
      views_.begin(), views_.end(),
      [](const ParameterView& a, const ParameterView& b) { return a.index < b.index; });
}

std::int64_t Parameters::norm_rows() const {
  std::int64_t rows = 0;
  for (const ParameterSpec& spec : list_.specs) rows += spec.norm_rows() * spec.place.ranks;
  return rows;
}

// Embedding, then layers, then final norm and head.
bool Parameters::has(const ParameterSpec& spec) const {
  if (spec.layer >= 0) return at(stages_, spec.layer) == stage_;
  return (spec.index == 0 ? stages_.front() : stages_.back()) == stage_;
}

bool Parameters::copies_tied_weight() const {
  return tied_ && stages_.front() != stages_.back() && stages_.back() == stage_;
}

void Parameters::make_tied_copy(TensorPool& pool) {
  Parameter& p = parameters_.front();
  const ParameterSpec& spec = list_.specs.front();
  if (copies_) {
    p.copy = pool.make<bf16>(spec.rows, spec.cols);
  } else {
    p.weight = pool.make<float>(spec.rows, spec.cols);
  }
  p.microbatch_gradient = pool.make<float>(spec.rows, spec.cols);
}

bool Parameters::parts_tied_gradient(const Scenario& scenario) const {
  const bool in_slots =
      strategy_ == Sharding::optim_grads || strategy_ == Sharding::optim_grads_params;
  return tied_ && in_slots && scenario.parallel.pipeline == 1 && scenario.parallel.chunks > 1;
}

Parameter Parameters::of_head() const {
  Parameter head = at(parameters_, list_.head);
  if (head_gradient_) head.microbatch_gradient = head_gradient_;
  return head;
}

MemoryRange Parameters::tied_weight() const {
  const bool takes_part = tied_ && stages_.front() != stages_.back() &&
                          (stage_ == stages_.front() || stage_ == stages_.back());
  if (!takes_part) return {};
  const Parameter& p = parameters_.front();
  return copies_ ? range_of(p.copy) : range_of(p.weight);
}

// ---- Whole --------------------------------------------------------------------------------------

void Parameters::make_whole(TensorPool& pool, const ParameterSpec& spec) {
  Parameter& p = parameters_.back();
  ParameterView view{
      .name = spec.name, .layer = spec.layer, .index = spec.index, .is_vector = spec.is_vector};
  view.first = spec.first_row() * spec.cols;
  view.full_rows = spec.all_rows();
  view.full_cols = spec.cols;
  view.weight = p.weight = pool.make<float>(spec.rows, spec.cols);
  if (layout_ == nullptr) view.gradient = p.gradient = pool.make<float>(spec.rows, spec.cols);
  view.m = pool.make<float>(spec.rows, spec.cols);
  view.v = pool.make<float>(spec.rows, spec.cols);
  if (!spec.accumulates) p.microbatch_gradient = pool.make<float>(spec.rows, spec.cols);
  p.first_writes = layout_ == nullptr && spec.accumulates && !in_region_[spec.layer + 1];
  if (layout_ == nullptr) view.microbatch_gradient = p.microbatch_gradient;
  if (copies_ && spec.copied) view.copy = p.copy = pool.make<bf16>(spec.rows, spec.cols);
  views_.push_back(view);
}

// The gathered codes of all weights, and their amaxes side by side. Weights that come and go have
// their transposed codes in one memory, which each backward pass writes anew.
void Parameters::make_gathered_codes(TensorPool& pool, TensorPool& exchanged) {
  const std::int64_t words = fp8_words();
  shard_amaxes_ = {exchanged.make<std::uint32_t>(1, words),
                   exchanged.make<std::uint32_t>(layout_->ranks, words),
                   pool.make<std::uint32_t>(1, words)};
  std::int64_t most = 0, word = 0;
  const auto columns = [](const Parameter& p) { return fp8_padded(p.copy.rows / p.fp8.experts); };
  for (const Parameter& p : parameters_)
    if (p.fp8) most = std::max(most, p.fp8.experts * p.copy.cols * columns(p));
  const bool comes_and_goes = strategy_ == Sharding::optim_grads_params;
  const Tensor<e4m3> shared = comes_and_goes ? pool.make<e4m3>(1, most) : Tensor<e4m3>{};
  for (Parameter& p : parameters_) {
    if (!p.fp8) continue;
    const std::int64_t experts = p.fp8.experts, lines = experts * p.copy.cols;
    p.fp8.gathered = true;
    p.fp8.comes_and_goes = comes_and_goes;
    const std::int64_t first = std::exchange(word, word + p.fp8.all_experts) + p.fp8.first_expert;
    p.fp8.amax = shard_amaxes_.whole.columns(first, experts);
    p.fp8.codes = tensor<e4m3>(nullptr, p.copy.rows, fp8_padded(p.copy.cols));
    p.fp8.transposed = comes_and_goes ? tensor(shared.data, lines, columns(p))
                                      : pool.make<e4m3>(lines, columns(p));
  }
}

Fp8Weight Parameters::make_codes(TensorPool& pool, const ParameterSpec& spec) const {
  const std::int64_t experts = spec.experts, before = spec.place.rank * experts;
  Fp8Weight to{.layer = spec.fp8_layer,
               .experts = experts,
               .first_expert = faulty("fp8-history-of-another-ranks-experts", before, 0),
               .all_experts = spec.place.ranks * experts};
  if (layout_ == nullptr || !layout_->gathers_codes) {
    to.codes = pool.make<e4m3>(spec.rows, fp8_padded(spec.cols));
    to.transposed = pool.make<e4m3>(experts * spec.cols, fp8_padded(spec.rows / experts));
    const bool alike = to.transposed.size() == to.codes.size();
    to.transposed.data = faulty("fp8-layouts-share-memory", to.transposed.data,
                                alike ? to.codes.data : to.transposed.data);
    to.amax = pool.make<std::uint32_t>(1, experts);
  }
  to.exponent = pool.make<std::int32_t>(1, experts);
  to.scale = pool.make<float>(1, experts);
  return to;
}

std::int64_t Parameters::fp8_words() const {
  std::int64_t words = 0;
  for (const Parameter& p : parameters_) words += p.fp8 ? p.fp8.all_experts : 0;
  return words;
}

// Operands in the order of layers, in a layer of its words, in a word X of all experts, then W;
// behind these dY. A rank has those of experts of other ranks too, for which it leaves 0 pending.
void Parameters::make_scaling(TensorPool& pool, TensorPool& exchanged, std::int64_t history) {
  const std::int64_t words = fp8_words();
  pending_.own = (layout_ == nullptr ? pool : exchanged).make<std::uint32_t>(1, 3 * words);
  if (layout_ != nullptr)
    pending_.of_ranks = exchanged.make<std::uint32_t>(layout_->ranks, 3 * words);
  const auto make = [&](std::int64_t first, std::int64_t n) -> Fp8Scaling {
    const Tensor<std::uint32_t> none, all = pending_.of_ranks;
    return {pending_.own.columns(first, n), pool.make<std::uint32_t>(n, history),
            pool.make<std::int32_t>(1, n), all ? all.columns(first, n) : none};
  };
  const auto of = [&](const Fp8Scaling& all, std::int64_t n, std::int64_t experts) -> Fp8Delayed {
    return {all.pending.columns(n, experts),
            tensor(all.history.data + n * history, experts, history),
            all.exponent.columns(n, experts)};
  };
  scaling_of_inputs_ = make(0, 2 * words);
  scaling_of_gradients_ = make(2 * words, words);
  std::int64_t word = 0;
  for (Parameter& p : parameters_) {
    if (!p.fp8) continue;
    const std::int64_t experts = p.fp8.all_experts;
    p.fp8.delayed_x = of(scaling_of_inputs_, 2 * word, experts);
    p.fp8.delayed = of(scaling_of_inputs_, 2 * word + experts, experts);
    p.fp8.delayed_dy = of(scaling_of_gradients_, word, experts);
    word += experts;
  }
}

// ---- Sharded ------------------------------------------------------------------------------------

// The sizes of the tensors that make_scaling(), make_gathered_codes() and make_bucket() make in the
// pool `exchanged`.
std::vector<std::int64_t> Parameters::exchanged_bytes(bool delayed) const {
  std::vector<std::int64_t> bytes;
  if (delayed && layout_ != nullptr) {
    const auto own = 3 * fp8_words() * static_cast<std::int64_t>(sizeof(std::uint32_t));
    bytes = {own, own * layout_->ranks};
  }
  if (layout_ != nullptr && layout_->gathers_codes) {
    const auto own = fp8_words() * static_cast<std::int64_t>(sizeof(std::uint32_t));
    bytes.insert(bytes.end(), {own, own * layout_->ranks});
  }
  const int buckets = layout_ == nullptr ? 0 : static_cast<int>(layout_->buckets.size());
  for (int b = 0; b < buckets; ++b) {
    const Bucket& bucket = at(layout_->buckets, b);
    const auto add = [&](std::int64_t elements, std::size_t size) {
      bytes.push_back(elements * static_cast<std::int64_t>(size));
    };
    const bool accumulates = strategy_ == Sharding::no_shard || strategy_ == Sharding::optim;
    if (accumulates && !library_sums_ && !layout_->continues(b))
      add(layout_->run(b) * bucket.sources, sizeof(float));
    if (strategy_ != Sharding::no_shard) add(bucket.shard, bucket.element_bytes());
  }
  return bytes;
}

void Parameters::make_bucket(TensorPool& pool, TensorPool& exchanged, int index) {
  const Bucket& bucket = at(layout_->buckets, index);
  BucketMemory memory;
  if (strategy_ == Sharding::no_shard || strategy_ == Sharding::optim) {
    // In registered memory the library would sum in another order.
    TensorPool& sums = library_sums_ ? pool : exchanged;
    float* const all = layout_->continues(index)
                           ? buckets_.back().accumulator.data + buckets_.back().accumulator.cols
                           : sums.make<float>(1, layout_->run(index) * bucket.sources).data;
    memory.accumulator = tensor(all, 1, layout_->gradients(bucket));
    const std::int64_t number = ShardLayout::number_of(bucket, rank_);
    memory.gradient = memory.accumulator.columns(bucket.shard * number, bucket.shard);
  }
  if (strategy_ != Sharding::no_shard) {
    memory.weight = (bucket.narrow ? pool : exchanged).make<float>(1, bucket.shard);
    for (Tensor<float>* shard : {&memory.m, &memory.v, &memory.gradient})
      *shard = pool.make<float>(1, bucket.shard);
    if (bucket.codes) memory.codes = exchanged.make<e4m3>(1, bucket.shard);
    if (bucket.narrow) memory.copy = (bucket.codes ? pool : exchanged).make<bf16>(1, bucket.shard);
    add_views(bucket, memory);
  }
  for (const Extent& extent : bucket.extents) {
    Parameter& p = at(parameters_, extent.parameter);
    (memory.accumulator ? p.gradient_stride : p.microbatch_stride) = layout_->full(bucket);
    if (extent.row > 0 || !memory.accumulator) continue;
    p.gradient.data = memory.accumulator.data + extent.offset;
    if (strategy_ == Sharding::no_shard) {
      const auto view = std::ranges::find(views_, extent.parameter, &ParameterView::index);
      view->gradient = p.gradient;
    } else if (!at(list_.specs, extent.parameter).accumulates) {
      p.microbatch_gradient = pool.make<float>(p.gradient.rows, p.gradient.cols);
    }
  }
  buckets_.push_back(memory);
}

void Parameters::add_views(const Bucket& bucket, const BucketMemory& memory) {
  for (const Extent& extent : bucket.extents) {
    const ParameterSpec& spec = at(list_.specs, extent.parameter);
    const OwnRows own = layout_->own(bucket, extent, rank_);
    ParameterView view{
        .name = spec.name, .layer = spec.layer, .index = spec.index, .is_vector = spec.is_vector};
    view.first = spec.first_row() * spec.cols + own.row * extent.width;
    view.full_rows = spec.all_rows();
    view.full_cols = spec.cols;
    const auto part = [&]<class T>(const Tensor<T>& shard) {
      return some_rows(spec, shard && own.rows > 0 ? shard.data + own.offset : nullptr, own.rows);
    };
    view.weight = part(memory.weight);
    view.gradient = part(memory.gradient);
    view.m = part(memory.m);
    view.v = part(memory.v);
    if (memory.copy) view.copy = part(memory.copy);
    if (memory.codes) view.codes = part(memory.codes);
    views_.push_back(view);
  }
}

void Parameters::place_weights(int bucket, void* memory) {
  const Bucket& b = at(layout_->buckets, bucket);
  for (const Extent& extent : b.extents) {
    if (extent.row > 0) continue;
    Parameter& p = at(parameters_, extent.parameter);
    if (b.codes) {
      p.fp8.codes.data = static_cast<e4m3*>(memory) + extent.offset;
    } else if (b.narrow) {
      p.copy.data = static_cast<bf16*>(memory) + extent.offset;
    } else {
      p.weight.data = static_cast<float*>(memory) + extent.offset;
    }
  }
}

void Parameters::place_gradients(int bucket, float* memory) {
  for (const Extent& extent : at(layout_->buckets, bucket).extents) {
    if (extent.row > 0) continue;
    at(parameters_, extent.parameter).microbatch_gradient.data = memory + extent.offset;
  }
}

// ---- Values -------------------------------------------------------------------------------------

void Parameters::initialize(const Stream& stream) const {
  zero_memory(stream);
  for (const ParameterView& view : views_) {
    if (view.weight.size() == 0) continue;
    const ParameterSpec& spec = at(list_.specs, view.index);
    stream.submit(Initialize{.w = view.weight,
                             .first = view.first,
                             .kind = spec.init,
                             .std = spec.std,
                             .width = spec.width,
                             .parameter = static_cast<std::uint32_t>(spec.index),
                             .seed_low = seed_low_,
                             .seed_high = seed_high_});
    stream.submit(ZeroGradient{.acc = view.m});
    stream.submit(ZeroGradient{.acc = view.v});
    if (layout_ == nullptr) stream.submit(ZeroGradient{.acc = view.gradient});
  }
  round(stream);
}

// The padding of a bucket is exchanged with it, so it needs a value.
void Parameters::zero_memory(const Stream& stream) const {
  for (const Fp8Scaling& scaling : {scaling_of_inputs_, scaling_of_gradients_}) {
    clear(stream, scaling.history);
    clear(stream, scaling.exponent);
  }
  clear(stream, pending_.own);
  for (const BucketMemory& memory : buckets_) {
    for (const Tensor<float>& x :
         {memory.weight, memory.m, memory.v, memory.gradient, memory.accumulator}) {
      clear(stream, x);
    }
    clear(stream, memory.copy);
    clear(stream, memory.codes);
  }
}

void Parameters::round(const Stream& stream) const {
  for (const ParameterView& view : views_) {
    if (view.copy) stream.submit(RoundWeights{.w = view.weight, .copy = view.copy});
  }
}

// A rank without rows of a weight has the amax 0.
void Parameters::measure_shards(const Stream& stream) const {
  stream.submit(Fp8ClearAmax{.amax = shard_amaxes_.own});
  std::int64_t word = 0;
  for (const ParameterView& view : views_) {
    const Fp8Weight& fp8 = at(parameters_, view.index).fp8;
    if (!fp8) continue;
    const Tensor<std::uint32_t> amax = shard_amaxes_.own.columns(word, fp8.all_experts);
    word += fp8.all_experts;
    if (view.copy.size() > 0)
      stream.submit(Fp8Amax{.x = view.copy,
                            .amax = amax,
                            .first_row = view.first / view.full_cols,
                            .segment_rows = view.full_rows / fp8.all_experts});
  }
}

void Parameters::quantise_shards(const Stream& stream, const ExponentRule& rule) const {
  Device& device = stream.device();
  for (const ParameterView& view : views_) {
    const Fp8Weight& fp8 = at(parameters_, view.index).fp8;
    if (!fp8) continue;
    device.place.layer = view.layer;
    Fp8Exponent<e4m3> op{.amax = fp8.amax, .k = fp8.exponent, .scale = fp8.scale};
    const Fp8Delayed delayed = fp8.own(fp8.delayed);
    op.pending = delayed.pending;
    if (rule.holds) op.held = delayed.exponent;
    stream.submit(op);
    const std::int64_t rows = view.full_rows / fp8.all_experts;  // The rows of an expert.
    const std::int64_t first = view.first / view.full_cols - fp8.first_expert * rows;
    if (view.copy.size() > 0)
      stream.submit(Fp8Cast<e4m3>{.x = view.copy,
                                  .k = fp8.exponent,
                                  .codes = view.codes,
                                  .first_row = first,
                                  .segment_rows = rows});
    device.count(stream, device.counters.of(device.place.rank).weight_casts);
  }
  device.place.layer = -1;
}

void Parameters::clear_amaxes(const Stream& stream) const {
  for (const Parameter& p : parameters_) {
    if (p.fp8 && p.fp8.cached && !p.fp8.gathered) stream.submit(Fp8ClearAmax{.amax = p.fp8.amax});
  }
}

void Parameters::quantise(const Stream& stream, int first_layer, int end_layer,
                          const ExponentRule& rule) const {
  Device& device = stream.device();
  for (const Parameter& p : parameters_) {
    const int layer = at(list_.specs, p.index).layer;
    if (!p.fp8 || !p.fp8.cached || layer < first_layer || layer >= end_layer) continue;
    device.place.layer = layer;
    p.fp8.gathered ? transpose_codes(stream, p)
                   : lockstep::quantise(stream, p, CodesFor::all_passes, rule);
  }
  device.place.layer = -1;
}

void Parameters::zero_gradients(const Stream& stream) const {
  if (layout_ == nullptr) {
    for (const ParameterView& view : views_) {
      if (!at(parameters_, view.index).first_writes)
        stream.submit(ZeroGradient{.acc = view.gradient});
    }
  }
  for (const BucketMemory& memory : buckets_) {
    stream.submit(ZeroGradient{.acc = memory.accumulator ? memory.accumulator : memory.gradient});
  }
}

std::vector<MemoryRange> Parameters::accumulators() const {
  std::vector<MemoryRange> ranges;
  if (layout_ == nullptr) {
    for (const ParameterView& view : views_) ranges.push_back(range_of(view.gradient));
  }
  for (const BucketMemory& memory : buckets_)
    ranges.push_back(range_of(memory.accumulator ? memory.accumulator : memory.gradient));
  return ranges;
}

// Memory that ranks exchange has padding, which needs a value. There a parameter has no
// accumulator.
void Parameters::poison_microbatch_gradients(const Stream& stream) const {
  for (const Parameter& p : parameters_) {
    if (!p.gradient || !p.microbatch_gradient) continue;
    const MemoryRange range = range_of(p.microbatch_gradient);
    stream.submit(poison(range.data, range.bytes));
  }
}

}  // namespace lockstep
