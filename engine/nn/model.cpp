#include "engine/nn/model.h"

#include <algorithm>

#include "engine/plan/expert_buffer.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/core/row_segments.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/rms_norm.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Attributes calls at the device to the backward pass while it lives.
class InBackward {
 public:
  explicit InBackward(Device& device) : device_(device) { device_.place.backward = true; }
  InBackward(const InBackward&) = delete;
  InBackward& operator=(const InBackward&) = delete;
  ~InBackward() { device_.place.backward = false; }

 private:
  Device& device_;
};

template <class T>
void copy_all(const Stream& stream, const Tensor<T>& to, const Tensor<T>& from) {
  stream.copy(to.data, from.data, range_of(from).bytes, CopyKind::device_to_device);
}

// For a planted fault: a bound that follows the documents at hand when launches are captured.
std::int64_t longest_of_first_capture(const Scenario& scenario) {
  if (reads_bytes(scenario.data)) return scenario.data.pack_length;
  const std::int64_t longest =
      need_of(scenario.data, microbatch_lengths(scenario, scenario.cuda_graph.warmup_steps, 0))
          .longest;
  return std::max<std::int64_t>(1, longest);
}

}  // namespace

template <class T>
Model<T>::Model(Device& device, const Stream& compute, const Offloaders& offloaders,
                SharedMemory* shared, const Parameters& parameters, const Scenario& scenario,
                const std::vector<Chunk>& chunks, int ranks, Communicator* experts)
    : device_(device),
      compute_(compute),
      config_(scenario.model),
      shape_(lockstep::pack_shape(scenario)),
      chunks_(chunks),
      pool_(device),
      parameters_(parameters),
      shared_(shared),
      recomputed_(pool_, scenario),
      expert_states_(make_expert_states(pool_, scenario.model, chunks_, ranks)),
      embedding_dropout_(dropout_site(scenario.model, 0, 1)) {
  const std::int64_t rows = shape_.rows;
  make_layers(device, scenario, experts);
  recomputed_.place_passing(pool_, faulty("fp8-inputs-lie-over-their-codes",
                                          gradient_within_a_layer(), memory_of_codes()));
  std::vector<ScanScratch> scans;
  for (const std::int64_t capacity : pack_capacities(scenario)) {
    scans.push_back(make_scan_scratch(pool_, capacity));
  }
  make_cudnn_workspace(pack_capacities(scenario));
  for (const Chunk& chunk : chunks_) {
    for (int i = 0; i < chunk.slots; ++i)
      slots_.push_back(make_slot(*at(offloaders, chunk.number), chunk, i, scenario, scans));
  }
  overflow_pools_.resize(slots_.size());
  ScratchMaker maker = scratch_maker();
  for (Tensor<T>& gradient : residual_gradient_) gradient = maker.make<T>(rows, config_.hidden);
  dlogits_ = maker.make<T>(rows, config_.vocab);
  dfinal_norm_ = maker.make<T>(rows, config_.hidden);
  for (Slot<T>& slot : slots_) {
    place_gradients(slot, *at(offloaders, slot.chunk), scenario);
  }
  make_sent(scenario);
  if constexpr (!std::is_same_v<T, float>) {
    workspace_ = pool_.make<std::uint8_t>(1, kProductWorkspace);
    plan_products();
  }
  if (multiplies_fp8(scenario)) make_code_scratch(scenario);
}

template <class T>
void Model<T>::make_sent(const Scenario& scenario) {
  for (const Chunk& chunk : chunks_) {
    std::vector<Tensor<T>>& sent = sent_gradients_.emplace_back();
    for (int i = 0; i < chunk.slots_before; ++i)
      sent.push_back(pool_.make<T>(shape_.rows, config_.hidden));
  }
  const bool sends = keeps_head_gradients() && chunks_.front().stages > 1 && chunks_.back().is_last;
  for (std::int64_t i = 0; sends && i < scheduled_depth(scenario); ++i)
    sent_head_gradients_.push_back(pool_.make<float>(config_.vocab, config_.hidden));
}

// The largest that a layer's backward pass writes and reads, and nobody else.
template <class T>
Tensor<T> Model<T>::gradient_within_a_layer() const {
  Tensor<T> largest;
  const auto consider = [&](Tensor<T> one) {
    if (one.data != nullptr && one.size() > largest.size()) largest = one;
  };
  if (mamba_scratch_) consider(mamba_scratch_->din_proj);
  if (attention_scratch_) consider(attention_scratch_->dqkv);
  if (mlp_scratch_) consider(mlp_scratch_->dfc1);
  if (moe_scratch_) consider(moe_scratch_->dfc1);
  return largest;
}

// For a planted fault, as elements.
template <class T>
Tensor<T> Model<T>::memory_of_codes() const {
  if (!mamba_scratch_ || mamba_scratch_->dpre.data == nullptr) return {};
  const Tensor<float> dpre = mamba_scratch_->dpre;
  return tensor(reinterpret_cast<T*>(dpre.data), 1, dpre.size());
}

// As much as the largest operands need: one stream runs one product after the other, and of X and
// dY a product has one. They may lie in what the convolution's backward pass alone uses.
template <class T>
void Model<T>::make_code_scratch(const Scenario& scenario) {
  constexpr std::int64_t kAligned = 256;
  std::int64_t rowwise = 1, transposed = 1;
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (!spec.fp8_layer) continue;
    const bool of_experts =
        *spec.fp8_layer == Fp8Layer::expert_fc1 || *spec.fp8_layer == Fp8Layer::expert_fc2;
    const std::int64_t rows = of_experts ? ExpertBuffer(scenario).owner_rows : shape_.rows;
    const std::int64_t outputs = spec.rows / spec.experts;
    rowwise = std::max(rowwise, rows * fp8_padded(std::max(spec.cols, outputs)));
    const std::int64_t segments = spec.experts * spec.place.ranks;
    transposed = std::max(transposed, transposed_columns(rows, segments) * outputs);
  }
  const std::int64_t place = (rowwise + kAligned - 1) / kAligned * kAligned;
  const Tensor<float> free = mamba_scratch_ ? mamba_scratch_->dpre : Tensor<float>{};
  const bool fits = free.data != nullptr &&
                    place + transposed <= free.size() * static_cast<std::int64_t>(sizeof(float));
  auto* const memory = fits ? reinterpret_cast<std::uint8_t*>(free.data)
                            : pool_.make<std::uint8_t>(1, place + transposed).data;
  codes_.x = codes_.dy = tensor(memory, 1, rowwise);
  codes_.transposed_dy = tensor(memory + place, 1, transposed);
}

// Plans the products of every linear layer and of the head. A weight that accumulates, other than
// the embedding, belongs to a linear layer.
template <class T>
void Model<T>::plan_products() const {
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (spec.layer >= 0 && !has_layer(chunks_, spec.layer)) continue;
    if (spec.layer < 0 && !chunks_.back().is_last) continue;
    const bool is_product = spec.accumulates && spec.index != 0;
    if (is_product || spec.index == parameters_.head()) {
      Linear<T>(parameters_[spec.index]).plan(device_, shape_.rows, workspace_);
    }
  }
}

template <class T>
void Model<T>::make_layers(Device& device, const Scenario& scenario, Communicator* experts) {
  auto expert_state = expert_states_.begin();
  for (int layer = 0; layer < static_cast<int>(config_.pattern.size()); ++layer) {
    if (!has_layer(chunks_, layer)) {
      layers_.emplace_back();
      continue;
    }
    switch (at(config_.pattern, layer)) {
      case 'M':
        if (!mamba_scratch_) mamba_scratch_.emplace(scratch_maker(), scenario);
        layers_.push_back(
            std::make_unique<Mamba<T>>(parameters_, config_, layer, *mamba_scratch_, recomputed_));
        break;
      case '*':
        if (!attention_scratch_) attention_scratch_.emplace(scratch_maker(), scenario);
        layers_.push_back(std::make_unique<SelfAttention<T>>(parameters_, config_, layer,
                                                             *attention_scratch_, recomputed_));
        break;
      case 'E':
        if (!moe_scratch_) moe_scratch_.emplace(device, scratch_maker(), scenario, experts);
        layers_.push_back(std::make_unique<Moe<T>>(parameters_, config_, *expert_state++,
                                                   *moe_scratch_, recomputed_));
        break;
      default:
        if (!mlp_scratch_) mlp_scratch_.emplace(scratch_maker(), scenario);
        layers_.push_back(
            std::make_unique<Mlp<T>>(parameters_, config_, layer, *mlp_scratch_, recomputed_));
    }
  }
}

template <class T>
ScanScratch Model<T>::make_scan_scratch(TensorPool& pool, std::int64_t capacity) const {
  const Scenario::Model::Mamba& m = config_.mamba;
  const std::int64_t widest =
      mamba_scratch_ ? std::max<std::int64_t>(config_.hidden, m.d_inner) : config_.hidden;
  ScanScratch scratch;
  scratch.sums = pool.make<float>((shape_.rows + 31) / 32, widest);
  if (mamba_scratch_) {
    const std::int64_t chunks = max_chunks(shape_, capacity);
    scratch.states = pool.make<float>(chunks, m.d_inner * m.state);
    scratch.dstates = pool.make<float>(chunks, m.d_inner * m.state);
  }
  return scratch;
}

template <class T>
Slot<T> Model<T>::make_slot(const Offloader& offloader, const Chunk& chunk, int index,
                            const Scenario& scenario, const std::vector<ScanScratch>& scans) {
  Slot<T> slot;
  slot.chunk = chunk.number;
  slot.number = chunk.first_slot + index;
  slot.first_buffer = pool_.size();
  const std::vector<std::int64_t> capacities = pack_capacities(scenario);
  const std::int64_t max_seqlen = faulty("max-seqlen-of-the-first-captured-pack", shape_.max_seqlen,
                                         longest_of_first_capture(scenario));
  for (std::size_t b = 0; b < scans.size(); ++b) {
    slot.packs.emplace_back(pool_, shape_, capacities[b], scans[b]);
    slot.packs.back().cudnn = make_cudnn_tables(pool_, capacities[b], max_seqlen);
  }
  SharedMemory* const shared = faulty("later-chunks-keep-memory-of-their-own", shared_,
                                      chunk.number == 0 ? shared_ : nullptr);
  SavedMaker maker(pool_, offloader, shared, slot.number, index, slot.names, shape_.rows);
  if (chunk.is_first) {
    slot.embedded = maker.make<T>("embedding.out", EmbeddingForward<T>::kName, config_.hidden);
  } else {
    // The judge reads the tensor where the chunk before has it. What may be offloaded is this one.
    const std::string name = "layers." + std::to_string(chunk.first_layer - 1) + ".out";
    slot.input = maker.make_unnamed<T>(name.c_str(), shape_.rows, config_.hidden);
  }
  Tensor<T> x = chunk.is_first ? slot.embedded : slot.input;
  slot.layers.resize(layers_.size());
  for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer) {
    maker.enter_layer(layer);
    at(slot.layers, layer) = at(layers_, layer)->make_saved(maker, x);
    x = at(slot.layers, layer)->out;
    if (layer > chunk.first_layer)
      at(slot.layers, layer)->dx_amax = at(slot.layers, layer - 1)->dout_amax;
  }
  if (!chunk.is_last) at(slot.layers, chunk.end_layer - 1)->dout_amax = {};
  maker.enter_layer(-1);
  make_ends(maker, chunk, slot);
  slot.end_buffer = pool_.size();
  return slot;
}

// The tensors behind the layers of a chunk: those of the head, or of a chunk to come.
template <class T>
void Model<T>::make_ends(SavedMaker& maker, const Chunk& chunk, Slot<T>& slot) {
  if (chunk.is_first && keeps_head_gradients())
    slot.head_gradient = pool_.make<float>(config_.vocab, config_.hidden);
  if (!chunk.is_last) {
    slot.output_gradient = maker.make_unnamed<T>("output_gradient", shape_.rows, config_.hidden);
    return;
  }
  slot.final_norm = maker.make<T>("final_norm.out", RmsNormForward<T>::kName, config_.hidden);
  slot.final_rstd = maker.make_row("final_norm.rstd", RmsNormForward<T>::kName);
  slot.logits = maker.make<T>("logits", LinearForward<T>::kName, config_.vocab);
  slot.token_loss = maker.make_row("token_loss", CrossEntropyForward<T>::kName);
  slot.maximum = maker.make_unnamed<float>("loss.maximum", 1, shape_.rows);
  slot.sum = maker.make_unnamed<float>("loss.sum", 1, shape_.rows);
}

template <class T>
void Model<T>::place_gradients(Slot<T>& slot, const Offloader& offloader,
                               const Scenario& scenario) {
  const Chunk& chunk = at(chunks_, slot.chunk);
  std::vector<NamedTensor> none;
  SavedMaker maker(pool_, offloader, shared_, slot.number, slot.number - chunk.first_slot, none,
                   shape_.rows);
  const std::vector<int> buffers = residual_gradients(scenario);
  const int end = chunk.is_last ? chunk.end_layer : chunk.end_layer - 1;
  for (int layer = 0; layer <= last(); ++layer) {
    // The gradients of other chunks are never used.
    const int own = std::clamp(layer, chunk.first_layer, end);
    slot.gradients.push_back(maker.place_scratch(residual_gradient_name(at(buffers, own)),
                                                 residual_gradient_[layer % 2]));
  }
  if (slot.output_gradient) at(slot.gradients, chunk.end_layer) = slot.output_gradient;
  if (!chunk.is_last) return;
  slot.dlogits = maker.place_scratch("dlogits", dlogits_);
  slot.dfinal_norm = maker.place_scratch("dfinal_norm", dfinal_norm_);
}

template <class T>
bool Model<T>::asks_cudnn() const {
  return attention_scratch_ && config_.core_attention == CoreAttention::cudnn;
}

template <class T>
void Model<T>::make_cudnn_workspace(const std::vector<std::int64_t>& capacities) {
  if (!asks_cudnn()) return;
  std::int64_t bytes = 1;
  for (const std::int64_t capacity : capacities) {
    bytes = std::max(
        bytes, plan_cudnn(device_, config_.attention, shape_.rows, capacity, shape_.max_seqlen));
  }
  cudnn_workspace_ = pool_.make<std::uint8_t>(1, bytes);
}

// A pack with more documents than any bucket holds may need more workspace than the buckets share.
template <class T>
CudnnTables Model<T>::make_cudnn_tables(TensorPool& pool, std::int64_t capacity,
                                        std::int64_t max_seqlen) const {
  if (!asks_cudnn()) return {};
  const AttentionClasses classes(shape_.rows, capacity, max_seqlen);
  const std::int64_t bytes =
      plan_cudnn(device_, config_.attention, shape_.rows, capacity, max_seqlen);
  CudnnTables tables{.lengths = pool.make<std::int32_t>(1, classes.slots),
                     .offsets = pool.make<std::int64_t>(3, classes.offsets()),
                     .workspace = cudnn_workspace_,
                     .max_seqlen = max_seqlen};
  if (bytes > cudnn_workspace_.cols) tables.workspace = pool.make<std::uint8_t>(1, bytes);
  const Tensor<T> used = attention_scratch_->dcore;
  const auto used_bytes = static_cast<std::int64_t>(sizeof(T)) * used.size();
  const auto over_gradients = tensor(reinterpret_cast<std::uint8_t*>(used.data), 1, used_bytes);
  tables.workspace = faulty("attention-workspace-over-gradients", tables.workspace, over_gradients);
  return tables;
}

template <class T>
void Model<T>::poison(const Slot<T>& slot) const {
  pool_.poison(compute_, slot.first_buffer, slot.end_buffer);
}

template <class T>
Slot<T>& Model<T>::slot(int index) {
  const int first = at(chunks_, at(slots_, index).chunk).first_slot;
  return at(slots_, faulty("saved-activations-shared-by-slots", index, first));
}

template <class T>
Tensor<T> Model<T>::gradient_of(const Slot<T>& slot, int layer) {
  return at(slot.gradients, faulty("residual-gradients-in-one-buffer", layer, 0));
}

template <class T>
const PackedBatch& Model<T>::pack(int index, int bucket, std::int64_t overflow_capacity) {
  const Chunk& chunk = at(chunks_, at(slots_, index).chunk);
  const int own = faulty("metadata-keyed-without-its-chunk", index, index - chunk.first_slot);
  Slot<T>& s = slot(faulty("metadata-shared-by-slots", own, chunk.first_slot));
  if (bucket >= 0) return at(s.packs, bucket);
  if (!s.overflow || s.overflow->capacity() < overflow_capacity) {
    compute_.synchronize();  // Queued work may still read the smaller one.
    s.overflow.reset();
    auto& pool = at(overflow_pools_, index);
    pool = std::make_unique<TensorPool>(device_);
    s.overflow.emplace(*pool, shape_, overflow_capacity,
                       make_scan_scratch(*pool, overflow_capacity));
    s.overflow->cudnn = make_cudnn_tables(*pool, overflow_capacity, shape_.rows);
  }
  return *s.overflow;
}

template <class T>
void Model<T>::initialize(const Stream& stream) const {
  clear(stream, expert_states_);
  if (moe_scratch_ && config_.moe.host_sync) moe_scratch_->initialize(stream);
  if (attention_scratch_) {
    const auto base = static_cast<float>(config_.attention.rope_base);
    stream.submit(RopeTable{.table = attention_scratch_->table,
                            .base = faulty("rope-has-its-own-base", base, 500000.0f)});
  }
}

template <class T>
void Model<T>::embed(const PassContext& pass, const MicrobatchInputs& inputs, Slot<T>& slot) const {
  pass.part("embedding");
  pass.stream.submit(
      EmbeddingForward<T>{.tokens = inputs.tokens,
                          .weight = weight_of<T>(parameters_[0]),
                          .row_document = pass.pack.row_document,
                          .row_position = pass.pack.row_position,
                          .row_number = pass.pack.row_number,
                          .state = pass.state,
                          .y = slot.embedded,
                          .dropout = pass.training ? embedding_dropout_ : Dropout{}});
}

template <class T>
void Model<T>::forward(const PassContext& pass, const Part& part, Slot<T>& slot) const {
  const std::size_t layer = part.layer;
  device_.place.layer = part.layer;
  layers_[layer]->forward_part(pass, *slot.layers[layer], part);
  device_.place.layer = -1;
}

template <class T>
void Model<T>::head(const PassContext& pass, const MicrobatchInputs& inputs, Slot<T>& slot,
                    Tensor<float> loss) const {
  pass.part("final_norm");
  pass.stream.submit(RmsNormForward<T>{.x = slot.layers.back()->out,
                                       .gain = parameters_[parameters_.final_gain()].weight,
                                       .row_document = pass.pack.row_document,
                                       .y = slot.final_norm,
                                       .rstd = slot.final_rstd,
                                       .eps = static_cast<float>(config_.norm_eps)});
  pass.part("head");
  Linear<T>(parameters_.of_head()).forward(pass, slot.final_norm, slot.logits);
  pass.part("loss");
  pass.stream.submit(CrossEntropyForward<T>{.logits = slot.logits,
                                            .targets = inputs.targets,
                                            .loss = slot.token_loss,
                                            .maximum = slot.maximum,
                                            .sum = slot.sum});
  pass.stream.submit(MicrobatchLoss{.loss = slot.token_loss, .state = pass.state, .total = loss});
}

template <class T>
void Model<T>::head_backward(const PassContext& pass, const MicrobatchInputs& inputs,
                             Slot<T>& slot) const {
  const InBackward here(device_);
  pass.part("loss");
  pass.stream.submit(CrossEntropyBackward<T>{.logits = slot.logits,
                                             .targets = inputs.targets,
                                             .maximum = slot.maximum,
                                             .sum = slot.sum,
                                             .state = pass.state,
                                             .dlogits = slot.dlogits});
  pass.part("head");
  const Parameter head = parameters_.of_head();
  const Linear<T> linear(head);
  // A tied weight adds one term per microbatch, so the head's part stays in g_m until the
  // embedding's joins it.
  if (config_.tied_embedding) {
    linear.weight_gradient(pass, slot.dlogits, slot.final_norm);
  } else {
    linear.accumulate_weight_gradient(pass, slot.dlogits, slot.final_norm);
  }
  linear.input_gradient(pass, slot.dlogits, slot.dfinal_norm);
  pass.part("final_norm");
  const Parameter& gain = parameters_[parameters_.final_gain()];
  pass.stream.submit(RmsNormBackward<T>{.x = slot.layers.back()->out,
                                        .rstd = slot.final_rstd,
                                        .gain = gain.weight,
                                        .dy = slot.dfinal_norm,
                                        .dresidual = {},
                                        .row_document = pass.pack.row_document,
                                        .dx = gradient_of(slot, last()),
                                        .dgain = gain.microbatch_gradient,
                                        .partials = pass.pack.scan.partials(config_.hidden),
                                        .amax = cleared_amax(pass, slot.layers.back()->dout_amax),
                                        .total = total_of(gain)});
}

template <class T>
void Model<T>::backward(const PassContext& pass, const Part& part, Slot<T>& slot) const {
  const InBackward here(device_);
  const std::size_t layer = part.layer;
  device_.place.layer = part.layer;
  layers_[layer]->backward_part(pass, *slot.layers[layer], part, gradient_of(slot, part.layer + 1),
                                gradient_of(slot, part.layer));
  device_.place.layer = -1;
}

template <class T>
void Model<T>::embed_backward(const PassContext& pass, const MicrobatchInputs& inputs,
                              Slot<T>& slot) const {
  const InBackward here(device_);
  pass.part("embedding");
  const Parameter& weight = parameters_[0];
  EmbeddingBackward<T> op{.tokens = inputs.tokens,
                          .dy = gradient_of(slot, 0),
                          .row_document = pass.pack.row_document,
                          .row_position = pass.pack.row_position,
                          .row_number = pass.pack.row_number,
                          .state = pass.state,
                          .dropout = pass.training ? embedding_dropout_ : Dropout{}};
  // g_m of a tied weight already holds the head's part: g_m = add(head dW, embedding rows).
  const bool tied = config_.tied_embedding;
  const bool joins = faulty("tied-gradient-overwritten", tied, false);
  if (joins) {
    op.acc = weight.microbatch_gradient;
  } else if (tied || !weight.gradient) {
    op.dweight = weight.microbatch_gradient;
  } else if (begins_sum(pass, weight)) {
    op.dweight = weight.gradient;
  } else {
    op.acc = weight.gradient;
  }
  pass.stream.submit(op);
  if (tied) accumulate(pass, weight);
}

// ---- Between chunks -----------------------------------------------------------------------------

template <class T>
void Model<T>::hand_on(const PassContext& pass, const Slot<T>& from, const Slot<T>& to) const {
  pass.part("chunk input");
  copy_all(pass.stream, to.input, output(from));
}

template <class T>
void Model<T>::hand_back(const PassContext& pass, const Slot<T>& from, const Slot<T>& to) const {
  const InBackward here(device_);
  pass.part("chunk gradient");
  const Tensor<T> dx = gradient_of(from, at(chunks_, from.chunk).first_layer);
  copy_all(pass.stream, to.output_gradient, dx);
}

template <class T>
void Model<T>::keep_head_gradient(const PassContext& pass, const Slot<T>& slot) const {
  if (!keeps_head_gradients()) return;
  const InBackward here(device_);
  pass.part("head");
  copy_all(pass.stream, slot.head_gradient, parameters_.of_head().microbatch_gradient);
}

template <class T>
void Model<T>::take_head_gradient(const PassContext& pass, const Slot<T>& slot) const {
  if (!keeps_head_gradients()) return;
  const InBackward here(device_);
  pass.part("embedding");
  copy_all(pass.stream, parameters_[0].microbatch_gradient, slot.head_gradient);
}

// ---- Between stages -----------------------------------------------------------------------------

template <class T>
Tensor<T> Model<T>::output(const Slot<T>& slot) const {
  return at(slot.layers, at(chunks_, slot.chunk).end_layer - 1)->out;
}

template <class T>
Tensor<T> Model<T>::hold_gradient(const PassContext& pass, const Slot<T>& slot,
                                  int microbatch) const {
  const InBackward here(device_);
  pass.part("chunk gradient");
  const Chunk& chunk = at(chunks_, slot.chunk);
  const int place = faulty("sent-gradients-in-one-buffer", microbatch % chunk.slots_before, 0);
  const Tensor<T> to = at(at(sent_gradients_, slot.chunk), place);
  copy_all(pass.stream, to, gradient_of(slot, chunk.first_layer));
  return to;
}

template <class T>
Tensor<float> Model<T>::hold_head_gradient(const PassContext& pass, int microbatch) const {
  const InBackward here(device_);
  pass.part("head");
  const Tensor<float> to =
      at(sent_head_gradients_, microbatch % static_cast<int>(sent_head_gradients_.size()));
  copy_all(pass.stream, to, parameters_[0].microbatch_gradient);
  return to;
}

// ---- Passes of a capture ------------------------------------------------------------------------

template <class T>
void Model<T>::fill_input(const Stream& stream, const Segment& region, const Slot<T>& slot,
                          const Ones& ones) const {
  ones.fill(stream, at(slot.layers, region.parts.front().layer)->x);
}

template <class T>
void Model<T>::fill_gradients(const Stream& stream, const Segment& region, const Slot<T>& slot,
                              const Ones& ones) const {
  const int last = region.parts.back().layer;
  ones.fill(stream, gradient_of(slot, last + 1));
  const MemoryRange amax = range_of(at(slot.layers, last)->dout_amax);
  if (amax.bytes > 0) stream.fill(amax.data, 0, amax.bytes);
  for (const Part& part : region.parts)
    at(layers_, part.layer)->fill_outside(stream, *at(slot.layers, part.layer), part, ones);
}

template <class T>
void Model<T>::poison_gradients() const {
  for (const Tensor<T>& gradient : residual_gradient_) {
    if (!gradient) continue;  // It lies in shared memory.
    const MemoryRange range = range_of(gradient);
    compute_.submit(lockstep::poison(range.data, range.bytes));
  }
}

template <class T>
std::int64_t Model<T>::most_filled() const {
  std::int64_t most = residual_gradient_[0].size();
  if (!moe_scratch_) return most;
  return std::max({most, moe_scratch_->dbuffer.size(), moe_scratch_->dweights.size()});
}

template class Model<float>;
template class Model<bf16>;

}  // namespace lockstep
