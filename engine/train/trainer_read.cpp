#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "engine/train/trainer_impl.h"
#include "kernels/core/contract.h"
#include "kernels/diagnostics/digest.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {
namespace {

// `from` holds the bytes of the values as T, at any alignment.
template <class T, class Widen>
std::vector<float> widened_from(const StoredValues& values, const void* from, Widen widen) {
  std::vector<T> stored(values.rows * values.cols);
  if (!stored.empty()) std::memcpy(stored.data(), from, values.bytes());
  std::vector<float> wide(stored.size());
  std::ranges::transform(stored, wide.begin(), widen);
  return wide;
}
std::vector<float> codes_from(const StoredValues& values, const void* from) {
  const bool by_rows = values.codes == StoredValues::Codes::by_rows;
  const std::int64_t pitch = fp8_padded(by_rows ? values.cols : values.rows);
  const auto* const codes = static_cast<const std::uint8_t*>(from);
  std::vector<float> wide;
  for (std::int64_t i = 0; i < values.rows; ++i) {
    for (std::int64_t k = 0; k < values.cols; ++k)
      wide.push_back(codes[by_rows ? i * pitch + k : k * pitch + i]);
  }
  return wide;
}
// Transposed codes in segments; `numbers` holds where each begins in the matrix, then its rows.
std::vector<float> segments_from(const StoredValues& values, const void* from,
                                 const std::vector<std::int32_t>& numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size() / 2);
  const RowSegments segments{numbers.data(), numbers.data() + count, values.rows, count};
  const std::int64_t pitch = transposed_columns(values.all_rows, count);
  const auto* const codes = static_cast<const std::uint8_t*>(from);
  std::vector<float> wide(values.rows * values.cols);
  for (std::int64_t i = 0; i < values.rows; ++i) {
    const std::int64_t s = segments.of_row(i);
    if (s < 0) continue;
    const std::int64_t place = segments.place(s) + i - segments.first(s);
    for (std::int64_t k = 0; k < values.cols && place < pitch; ++k)
      wide[i * values.cols + k] = codes[k * pitch + place];
  }
  return wide;
}
std::vector<float> widened(const StoredValues& values, const void* from) {
  if (values.codes != StoredValues::Codes::none) return codes_from(values, from);
  if (values.narrow) return widened_from<bf16>(values, from, [](bf16 x) { return load(x); });
  if (values.integers) {
    return widened_from<std::int32_t>(values, from,
                                      [](std::int32_t x) { return static_cast<float>(x); });
  }
  return widened_from<float>(values, from, [](float x) { return x; });
}

// Counters of the graphs and of the step loop.
Counters loop_counters(const StepLoop& loop) {
  const RunCounters run = loop.counters();
  const GraphSet& graphs = loop.graphs();
  return {{Counter::graphs_captured, graphs.captured},
          {Counter::graph_replays, graphs.launches},
          {Counter::eager_fallbacks,
           run.fallbacks_documents + run.fallbacks_length + run.fallbacks_cut},
          {Counter::fallbacks_documents, run.fallbacks_documents},
          {Counter::fallbacks_length, run.fallbacks_length},
          {Counter::fallbacks_cut, run.fallbacks_cut},
          {Counter::evaluation_replays, run.evaluation_replays},
          {Counter::graphs_evicted, graphs.evicted},
          {Counter::recaptures, run.recaptures},
          {Counter::capture_passes, run.capture_passes},
          {Counter::max_outstanding, run.max_outstanding},
          {Counter::slots_live, run.slots_live},
          {Counter::evaluations, run.evaluations},
          {Counter::collectives_in_graphs, run.collectives_in_graphs},
          {Counter::persistent_buffers, run.persistent_buffers},
          {Counter::late_gathers, run.late_gathers}};
}

Counters offload_counters(const RunCounters& run) {
  return {{Counter::bytes_planned, run.bytes_planned},
          {Counter::bytes_offloaded, run.bytes_offloaded},
          {Counter::bytes_reloaded, run.bytes_reloaded},
          {Counter::offloads_in_flight, run.offloads_in_flight},
          {Counter::offloads_delayed, run.offloads_delayed},
          {Counter::spare_buffers, run.spare_buffers},
          {Counter::copies_in_graphs, run.copies_in_graphs},
          {Counter::bytes_shared, run.bytes_shared},
          {Counter::copy_bytes_in_graphs, run.copy_bytes_in_graphs}};
}

Counters device_counters(Device& device) {
  const int rank = device.place.rank;
  return {{Counter::host_syncs, device.counters.host_syncs},
          {Counter::expert_rows_read, device.counters.of(rank).expert_rows_read},
          {Counter::ops, device.counters.ops},
          {Counter::ops_recomputed, device.counters.of(rank).ops_recomputed},
          {Counter::attention_by_cudnn, device.counters.of(rank).attention_by_cudnn},
          {Counter::fp8_products, device.counters.of(rank).fp8_products},
          {Counter::fp8_casts, device.counters.of(rank).fp8_casts},
          {Counter::weight_casts, device.counters.of(rank).weight_casts},
          {Counter::amax_exchanges, device.counters.of(rank).amax_exchanges},
          {Counter::delays_applied, device.counters.delays},
          {Counter::bytes_poisoned, device.backend().bytes_poisoned()},
          {Counter::bytes_poisoned_padding, device.counters.bytes_poisoned}};
}

Counters router_counters(const std::vector<RoutedPairs>& layers) {
  std::int64_t pairs = 0, kept = 0, experts = 0;
  for (const RoutedPairs& layer : layers) {
    pairs = std::accumulate(layer.chosen.begin(), layer.chosen.end(), pairs);
    kept = std::accumulate(layer.kept.begin(), layer.kept.end(), kept);
    experts += std::count_if(layer.chosen.begin(), layer.chosen.end(),
                             [](std::int64_t n) { return n > 0; });
  }
  return {{Counter::tokens_dropped, pairs - kept},
          {Counter::pairs_routed, pairs},
          {Counter::experts_used, experts}};
}

}  // namespace

// Stages all device tensors into one pinned buffer and synchronises once.
std::byte* Trainer::Impl::stage(std::span<const StoredValues> list) {
  std::size_t bytes = 0;
  for (const StoredValues& values : list) bytes += values.on_host ? 0 : values.bytes();
  if (bytes == 0) {
    // A copy in pinned memory may be under way (cuda_graph.shared_memory).
    if (!list.empty()) loop.compute().synchronize();
    return nullptr;
  }
  if (!staged || staged->bytes() < bytes) staged.emplace(device, std::bit_ceil(bytes));
  auto* const memory = static_cast<std::byte*>(staged->data());
  device.host_writes(memory, bytes);
  std::memset(memory, 0xff, bytes);  // A copy that does not happen leaves NaN.
  std::byte* to = memory;
  for (const StoredValues& values : list) {
    if (values.on_host) continue;
    if (values.bytes() > 0)
      loop.compute().copy(to, values.data, values.bytes(), CopyKind::device_to_host);
    to += values.bytes();
  }
  loop.compute().synchronize();
  device.host_reads(memory, bytes);
  return memory;
}

std::vector<float> Trainer::read(StoredValues values) const { return read({&values, 1}).front(); }

// The numbers that say where segments of codes lie are read before the codes.
std::vector<std::vector<float>> Trainer::read(std::span<const StoredValues> list) const {
  std::vector<StoredValues> all(list.begin(), list.end());
  std::vector<std::vector<std::int32_t>> numbers(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const StoredValues::Segments& segments = all[i].segments;
    if (!segments.rows) continue;
    numbers[i] = impl_->read(segments.start);
    const std::vector<std::int32_t> rows = impl_->read(segments.rows);
    impl_->device.counters.host_syncs -= 2;  // A judge's are none of the run's.
    numbers[i].insert(numbers[i].end(), rows.begin(), rows.end());
    const std::int64_t used = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    if (segments.follow_the_data)
      all[i].all_rows = std::clamp<std::int64_t>(used, 0, all[i].all_rows);
  }
  const std::byte* staged = impl_->stage(all);
  std::vector<std::vector<float>> read;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const StoredValues& values = all[i];
    if (values.on_host) impl_->device.host_reads(values.data, values.bytes());
    const void* const from = values.on_host ? values.data : staged;
    if (!values.on_host) staged += values.bytes();
    read.push_back(values.segments.rows ? segments_from(values, from, numbers[i])
                                        : widened(values, from));
  }
  return read;
}

const std::vector<ParameterView>& Trainer::parameters() const {
  return impl_->loop.parameters().views();
}

std::vector<ExpertBiasView> Trainer::expert_biases() const {
  std::vector<ExpertBiasView> views;
  for (const ExpertState& state : impl_->loop.expert_states()) {
    if (state.bias) views.push_back({state.layer, state.bias});
  }
  return views;
}

std::vector<RoutedPairs> Trainer::routed_pairs() const {
  const Impl& my = *impl_;
  std::vector<RoutedPairs> layers;
  for (const ExpertState& state : my.loop.expert_states()) {
    layers.push_back({state.layer, my.read(state.total), my.read(state.kept)});
    // Reading counters must not count as a host sync of the run.
    my.device.counters.host_syncs -= 2;
  }
  return layers;
}

namespace {

// The digest of what `submit` adds to two words, over all ranks that have a part in it: of ranks
// that have the same, one counts. `apart`: the ranks of a stage have different parts.
template <class Impl, class Submit>
std::string digest_of(const Impl& my, bool apart, const Submit& submit) {
  const Stream& stream = my.loop.compute();
  const Tensor<std::uint64_t> own = my.digest.columns(0, 2),
                              all = my.digest.columns(2, my.digest.cols - 2);
  stream.fill(own.data, 0, 2 * sizeof(std::uint64_t));
  submit(stream, own);
  const bool gathers = apart || my.several_stages();
  if (gathers)
    my.of_all()->all_gather(stream, {"digest"}, all.data, own.data, 2 * sizeof(std::uint64_t));
  std::uint64_t low = 0, high = 0;
  const std::vector<std::uint64_t> sums = my.read(gathers ? all : own);
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    const bool repeats = gathers && !apart && static_cast<int>(i / 2) % my.ranks() != my.replica();
    low += repeats ? 0 : sums[i];
    high += repeats ? 0 : sums[i + 1];
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

// The words of an operand as what they are bits of.
template <class Word>
Tensor<float> bits_of(const Tensor<Word>& words, std::int64_t row, std::int64_t first,
                      std::int64_t count) {
  return tensor(reinterpret_cast<float*>(words.data) + row * words.pitch + first, 1, count);
}

}  // namespace

// The digest is a sum over elements, so it does not depend on which rank has them.
std::string Trainer::weight_digest() const {
  const bool parted = expert_ranks(impl_->scenario) > 1, sharded = impl_->sharded();
  return digest_of(*impl_, sharded || parted, [&](const Stream& stream, Tensor<std::uint64_t> own) {
    for (const ParameterView& p : parameters()) {
      const bool repeats = parted && !sharded && !impl_->is_first_with(p);
      if (p.weight.size() == 0 || repeats) continue;
      stream.submit(Digest{.values = p.weight,
                           .sums = own,
                           .first = static_cast<std::uint64_t>(p.first),
                           .tensor = static_cast<std::uint64_t>(p.index)});
    }
  });
}

// Operands are numbered in the order of layers and their words: X of all experts, W, dY.
std::string Trainer::scaling_digest() const {
  const Parameters& parameters = impl_->loop.parameters();
  if (!parameters.scaling_of_inputs().history) return "";
  return digest_of(*impl_, false, [&](const Stream& stream, Tensor<std::uint64_t> own) {
    std::uint64_t number = std::uint64_t{5} << 32;
    const auto add = [&](const Fp8Delayed& operand, std::int64_t e) {
      const std::int64_t length = operand.history.cols;
      stream.submit(
          Digest{.values = bits_of(operand.history, e, 0, length), .sums = own, .tensor = number});
      stream.submit(Digest{.values = bits_of(operand.exponent, 0, e, 1),
                           .sums = own,
                           .first = static_cast<std::uint64_t>(length),
                           .tensor = number});
    };
    for (const ParameterSpec& spec : parameters.specs()) {
      if (!spec.fp8_layer) continue;
      const Fp8Weight& fp8 = parameters[spec.index].fp8;  // Absent on ranks of other stages.
      for (const Fp8Delayed* operand : {&fp8.delayed_x, &fp8.delayed, &fp8.delayed_dy}) {
        for (std::int64_t e = 0; e < spec.experts * spec.place.ranks; ++e, ++number) {
          if (fp8) add(*operand, e);
        }
      }
    }
  });
}

Counters Trainer::counters() const {
  const Impl& my = *impl_;
  Counters all = router_counters(routed_pairs());
  all.merge(loop_counters(my.loop));
  all.merge(offload_counters(my.loop.counters()));
  all.merge(device_counters(my.device));
  all[Counter::collectives] = my.communicator() == nullptr ? 0 : my.communicator()->collectives;
  if (my.several_stages()) all[Counter::collectives] += my.of_all()->collectives;
  for (const auto& group : {my.expert_group.get(), my.replica_group.get()})
    all[Counter::collectives] += group == nullptr ? 0 : group->collectives;
  all[Counter::bytes_poisoned_staging] = my.loop.bytes_poisoned();
  return all;
}

}  // namespace lockstep
