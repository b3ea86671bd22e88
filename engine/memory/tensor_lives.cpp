#include "engine/memory/tensor_lives.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/offload/plan.h"
#include "engine/plan/expert_buffer.h"
#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// The segments in which the stages of a layer run. Only those of an `E` may differ.
struct StageSegments {
  int router = -1, preprocess = -1, experts = -1;
};

std::vector<StageSegments> stage_segments(const Scenario& scenario,
                                          const std::vector<Segment>& list) {
  std::vector<StageSegments> of_layer(scenario.model.pattern.size());
  for (int i = 0; i < static_cast<int>(list.size()); ++i) {
    for (const Part& part : at(list, i).parts) {
      StageSegments& layer = at(of_layer, part.layer);
      if (part.has(Stage::router)) layer.router = i;
      if (part.has(Stage::preprocess)) layer.preprocess = i;
      if (part.has(Stage::experts)) layer.experts = i;
    }
  }
  return of_layer;
}

std::set<std::string> offloaded_names(const OffloadPlan& plan) {
  std::set<std::string> names;
  for (const OffloadGroup& group : plan.groups) {
    if (group.is_resident) continue;
    for (const OffloadTensor& tensor : group.tensors) names.insert(tensor.name);
  }
  return names;
}

enum class Word : std::uint8_t { stored, wide };  // The precision's type; four bytes always.

class Lister {
 public:
  explicit Lister(const Scenario& scenario)
      : scenario_(scenario),
        model_(scenario.model),
        moe_(scenario.model.moe),
        list_(segments(scenario)),
        of_layer_(stage_segments(scenario, list_)),
        residual_gradients_(residual_gradients(scenario)),
        offload_(plan_offload(scenario)),
        offloaded_(offloaded_names(offload_)),
        rows_(scenario.data.pack_length),
        buffer_rows_(ExpertBuffer(scenario).rows),
        owner_rows_(ExpertBuffer(scenario).owner_rows),
        word_(stores_bf16(scenario) ? 2 : 4),
        head_(static_cast<int>(list_.size())),
        slots_(static_cast<int>(scenario.training.in_flight)) {}

  std::vector<LivingTensor> build() {
    for (slot_ = 0; slot_ < slots_; ++slot_) {
      list_slot();
      list_gradients();
    }
    list_bins();
    return std::move(tensors_);
  }

 private:
  int layers() const { return static_cast<int>(of_layer_.size()); }
  int backward(int segment) const { return 2 * head_ + 1 - segment; }
  bool passes_norm(int layer) const {
    const std::optional<Fp8Layer> reader = reader_of_norm(at(model_.pattern, layer));
    return reader && passes_input(scenario_, *reader);
  }
  bool again(Recompute module) const { return holds(model_.recompute, module); }
  std::int64_t gates() const { return model_.mlp.activation == MlpActivation::swiglu ? 2 : 1; }

  void add(const std::string& name, std::int64_t rows, std::int64_t cols, Word word, Life life) {
    if (offloaded_.contains(name)) return;
    const std::int64_t bytes = rows * cols * (word == Word::wide ? 4 : word_);
    const auto [place, is_new] = places_.try_emplace({slot_, name}, tensors_.size());
    if (is_new)
      tensors_.push_back({.name = name, .slot = slot_, .bytes = bytes, .common = common_});
    tensors_[place->second].lives.push_back(life);
  }

  // ---- Tensors of a slot ------------------------------------------------------------------------

  // Written in the forward pass of a segment, read until that of another.
  static Life passing(int written, int read) { return {written, read, read}; }
  // Read until the backward pass of a third.
  Life kept(int written, int read, int backward_read) const {
    return {written, read, backward(backward_read)};
  }
  Life kept(int segment) const { return kept(segment, segment, segment); }

  void of_rows(int layer, const char* name, std::int64_t cols, Life life,
               Word word = Word::stored) {
    add("layers." + std::to_string(layer) + "." + name, rows_, cols, word, life);
  }
  void of_buffer(int layer, const char* name, std::int64_t rows, std::int64_t cols, Life life) {
    add("layers." + std::to_string(layer) + "." + name, rows, cols, Word::stored, life);
  }

  void list_slot() {
    add("embedding.out", rows_, model_.hidden, Word::stored, residual(-1));
    for (int layer = 0; layer < layers(); ++layer) {
      list_layer(layer);
      of_rows(layer, "out", model_.hidden, residual(layer));
    }
    const Life in_both = kept(head_);
    add("final_norm.out", rows_, model_.hidden, Word::stored, in_both);
    add("final_norm.rstd", rows_, 1, Word::wide, in_both);
    add("logits", rows_, model_.vocab, Word::stored, in_both);
    add("token_loss", rows_, 1, Word::wide, passing(head_, head_));
    add("loss.maximum", rows_, 1, Word::wide, in_both);
    add("loss.sum", rows_, 1, Word::wide, in_both);
  }

  // The residual stream behind a layer, -1 for the embedding. The next layer reads it at both ends
  // of its forward pass, and its norm at the end of the backward pass.
  Life residual(int layer) const {
    const int written = layer < 0 ? -1 : at(of_layer_, layer).experts;
    const bool is_last = layer + 1 == layers();
    const StageSegments none{head_, head_, head_};
    const StageSegments& next = is_last ? none : at(of_layer_, layer + 1);
    Life life = kept(written, next.experts, next.router);
    life.end = faulty("input-reused-before-the-backward-replay", life.end, life.forward_end);
    return life;
  }

  void list_layer(int layer) {
    const int segment = at(of_layer_, layer).router;
    if (!again(Recompute::layernorm) && !passes_norm(layer))
      of_rows(layer, "norm.out", model_.hidden, norm(layer));
    of_rows(layer, "norm.rstd", 1, kept(segment), Word::wide);
    switch (at(model_.pattern, layer)) {
      case 'M':
        return list_mamba(layer, segment);
      case '*':
        return list_attention(layer, segment);
      case 'E':
        return list_experts(layer);
      default:
        return list_mlp(layer, segment);
    }
  }
  // The experts' dispatch reads it too.
  Life norm(int layer) const {
    const StageSegments& s = at(of_layer_, layer);
    const Life saved = kept(s.router, s.experts, s.router);
    const bool in_fp8 = multiplies_fp8(scenario_);
    return faulty("fp8-original-input-reused-early", saved,
                  in_fp8 ? passing(s.router, s.experts) : saved);
  }

  void list_attention(int layer, int segment) {
    const Scenario::Model::Attention& a = model_.attention;
    of_rows(layer, "qkv", (a.heads + 2 * a.kv_heads) * a.head_dim, kept(segment));
    if (!again(Recompute::core_attn)) {
      of_rows(layer, "core_attn.out", a.heads * a.head_dim, kept(segment));
      of_rows(layer, "core_attn.lse", a.heads, kept(segment), Word::wide);
    }
    of_rows(layer, "proj", model_.hidden, passing(segment, segment));
  }

  void list_mlp(int layer, int segment) {
    if (again(Recompute::mlp)) return;
    of_rows(layer, "fc1", gates() * model_.mlp.hidden, kept(segment));
    if (!again(Recompute::mlp_act) && !passes_input(scenario_, Fp8Layer::mlp_fc2))
      of_rows(layer, "act", model_.mlp.hidden, kept(segment));
    of_rows(layer, "proj", model_.hidden, passing(segment, segment));
  }

  std::int64_t channels() const {
    return model_.mamba.d_inner + 2 * model_.mamba.groups * model_.mamba.state;
  }
  std::int64_t projected() const {
    return model_.mamba.d_inner + channels() + model_.mamba.d_inner / model_.mamba.head_dim;
  }

  void list_mamba(int layer, int segment) {
    if (again(Recompute::mamba)) return;
    const Scenario::Model::Mamba& m = model_.mamba;
    of_rows(layer, "in_proj", projected(), kept(segment));
    of_rows(layer, "conv", channels(), kept(segment));
    of_rows(layer, "scan", m.d_inner, kept(segment));
    if (!passes_input(scenario_, Fp8Layer::mamba_out_proj))
      of_rows(layer, "gated_norm.out", m.d_inner, kept(segment));
    of_rows(layer, "gated_norm.rstd", m.groups, kept(segment), Word::wide);
    of_rows(layer, "proj", model_.hidden, passing(segment, segment));
  }

  void list_experts(int layer) {
    const StageSegments& s = at(of_layer_, layer);
    const Life routing = kept(s.router);
    const int combine = faulty("output-dead-behind-its-graph", s.experts, s.router);
    of_rows(layer, "selected", moe_.top_k, kept(s.router, s.preprocess, s.router), Word::wide);
    add(of(layer, "counts"), 1, moe_.experts, Word::wide, passing(s.router, s.preprocess));
    if (moe_.aux_loss.millionths > 0 || moe_.z_loss.millionths > 0) {
      add(of(layer, "slopes"), 1, moe_.experts + 1, Word::wide, routing);
      // Read behind all segments, for the step's sum.
      add(of(layer, "losses"), 1, 2, Word::wide, passing(s.router, head_));
    }
    if (!again(Recompute::moe)) {
      of_rows(layer, "router.logits", moe_.experts, routing, Word::wide);
      of_rows(layer, "router.scores", moe_.experts, routing, Word::wide);
      of_rows(layer, "router.lse", 1, routing, Word::wide);
      of_rows(layer, "router.weights", moe_.top_k, kept(s.router, combine, combine), Word::wide);
      if (moe_.shared_hidden > 0) list_shared_expert(layer, combine);
    }
    list_placement(layer, s);
    if (!again(Recompute::moe)) list_buffers(layer, s.experts);
  }

  void list_shared_expert(int layer, int combine) {
    const int router = at(of_layer_, layer).router;
    of_rows(layer, "shared_fc1", gates() * moe_.shared_hidden, kept(router));
    if (!again(Recompute::moe_act) && !passes_input(scenario_, Fp8Layer::shared_fc2))
      of_rows(layer, "shared_act", moe_.shared_hidden, kept(router));
    of_rows(layer, "shared_out", model_.hidden, passing(router, combine));
  }

  void list_placement(int layer, const StageSegments& s) {
    const Life until_experts = kept(s.preprocess, s.experts, s.experts);
    add(of(layer, "expert_start"), 1, moe_.experts, Word::wide, until_experts);
    add(of(layer, "expert_rows"), 1, moe_.experts, Word::wide, until_experts);
    // The gradient of the dispatch is computed with the router's.
    of_rows(layer, "pair_row", moe_.top_k, kept(s.preprocess, s.experts, s.router), Word::wide);
    add(of(layer, "row_pair"), 1, buffer_rows_, Word::wide, until_experts);
  }

  void list_buffers(int layer, int experts) {
    const bool are_apart = expert_ranks(scenario_) > 1;
    if (!passes_input(scenario_, Fp8Layer::expert_fc1)) {
      const Life saved = kept(experts), sent = passing(experts, experts);
      // A copy for a judge is of all rows, which are all written unless the host reads sizes.
      const bool passes = are_apart && !moe_.host_sync;
      of_buffer(layer, "dispatched", buffer_rows_, model_.hidden, passes ? sent : saved);
      if (are_apart) {
        of_buffer(layer, "owned", owner_rows_, model_.hidden,
                  faulty("received-rows-reused-early", saved, sent));
      }
    }
    of_buffer(layer, "expert_fc1", owner_rows_, gates() * moe_.hidden, kept(experts));
    if (!again(Recompute::moe_act) && !passes_input(scenario_, Fp8Layer::expert_fc2))
      of_buffer(layer, "moe_act", owner_rows_, moe_.hidden, kept(experts));
    of_buffer(layer, "expert_out", buffer_rows_, model_.hidden, kept(experts));
    of_rows(layer, "proj", model_.hidden, passing(experts, experts));
  }

  static std::string of(int layer, const char* name) {
    return "layers." + std::to_string(layer) + "." + name;
  }

  // ---- Buffers of offloading, for all slots
  // ------------------------------------------------------

  // Copies run beside later segments and passes, and what waits for their end are the next writer
  // of the buffer and the copy back alone. So nothing else may ever lie in it.
  void list_bins() {
    const int bins = static_cast<int>(offload_.sets * std::ssize(offload_.buffers));
    for (int bin = 0; bin < bins; ++bin) {
      const auto buffer = static_cast<int>(bin % std::ssize(offload_.buffers));
      const std::vector<Life> all{{-1, head_, 2 * head_ + 2}}, read = lives_without_copies(buffer);
      tensors_.push_back({.name = bin_name(bin),
                          .bytes = at(offload_.buffers, buffer),
                          .is_buffer = true,
                          .lives = faulty("tail-of-a-copy-out-forgotten", all, read)});
    }
  }
  // For a planted fault: until the last op that reads it, and from its copy back on. That may begin
  // in the forward pass of another microbatch.
  std::vector<Life> lives_without_copies(int buffer) const {
    std::vector<Life> lives;
    for (const OffloadGroup& group : offload_.groups) {
      for (const OffloadTensor& tensor : group.tensors) {
        if (tensor.buffer != buffer) continue;
        lives.push_back({tensor.written, group.last_read, group.last_read});
        const int begin = group.h2d.begin;
        if (offload_.in_forward(begin)) lives.push_back({begin, begin - 1, head_});
        lives.push_back({std::max(begin, head_ + 1), head_, group.h2d.end});
      }
    }
    return lives;
  }

  // ---- Gradients --------------------------------------------------------------------------------

  // Written in the backward pass of a segment, read until that of an earlier one.
  Life gradient(int written, int read) const {
    return {backward(written), backward(written) - 1, backward(read)};
  }

  void add_common(const std::string& name, const std::string& common, std::int64_t rows,
                  std::int64_t cols, Word word, Life life) {
    common_ = common;
    add(name, rows, cols, word, life);
    common_.clear();
  }
  // All layers of a kind have one where nothing is shared.
  std::string kind(int layer, const char* name) const {
    return std::string(1, at(model_.pattern, layer)) + "." + name;
  }
  void scratch(int layer, const char* name, std::int64_t cols, Life life,
               Word word = Word::stored) {
    add_common(of(layer, name), kind(layer, name), rows_, cols, word, life);
  }
  void scratch_of_buffer(int layer, const char* name, std::int64_t rows, std::int64_t cols,
                         Life life) {
    add_common(of(layer, name), kind(layer, name), rows, cols, Word::stored, life);
  }

  void list_gradients() {
    const Life at_head = gradient(head_, head_);
    add_common("dlogits", "dlogits", rows_, model_.vocab, Word::stored, at_head);
    add_common("dfinal_norm", "dfinal_norm", rows_, model_.hidden, Word::stored, at_head);
    for (int layer = layers(); layer >= 0; --layer) {
      const int written = layer == layers() ? head_ : at(of_layer_, layer).router;
      const int embedding = -1;
      const int read = layer == 0 ? embedding : at(of_layer_, layer - 1).router;
      add_common(residual_gradient_name(at(residual_gradients_, layer)),
                 residual_gradient_name(layer % 2), rows_, model_.hidden, Word::stored,
                 gradient(written, read));
      if (layer < layers()) list_scratch(layer);
    }
  }

  void list_scratch(int layer) {
    const int segment = at(of_layer_, layer).router;
    const Life here = gradient(segment, segment);
    const char symbol = at(model_.pattern, layer);
    if (symbol == 'E') return list_expert_scratch(layer);
    if (model_.dropout.millionths != 0) scratch(layer, "dmixed", model_.hidden, here);
    scratch(layer, "dnorm", model_.hidden, here);
    if (symbol == 'M') return list_mamba_scratch(layer, here);
    if (symbol == '*') return list_attention_scratch(layer, here);
    scratch(layer, "dact", model_.mlp.hidden, here);
    scratch(layer, "dfc1", gates() * model_.mlp.hidden, here);
  }

  void list_attention_scratch(int layer, Life here) {
    const Scenario::Model::Attention& a = model_.attention;
    scratch(layer, "dcore", a.heads * a.head_dim, here);
    scratch(layer, "dqkv", (a.heads + 2 * a.kv_heads) * a.head_dim, here);
    scratch(layer, "delta", a.heads, here, Word::wide);
  }

  void list_mamba_scratch(int layer, Life here) {
    const Scenario::Model::Mamba& m = model_.mamba;
    scratch(layer, "dgated", m.d_inner, here);
    scratch(layer, "dscan", m.d_inner, here);
    scratch(layer, "dconv", channels(), here);
    scratch(layer, "din_proj", projected(), here);
    scratch(layer, "dpre", channels(), here, Word::wide);
    scratch(layer, "scan_rows", 3 * (m.d_inner / m.head_dim), here, Word::wide);
  }

  void list_expert_scratch(int layer) {
    const StageSegments& s = at(of_layer_, layer);
    const Life experts = gradient(s.experts, s.experts), router = gradient(s.router, s.router);
    const Life both = gradient(s.experts, s.router);
    const bool shared = moe_.shared_hidden > 0;
    if (model_.dropout.millionths != 0)
      scratch(layer, "dmixed", model_.hidden, shared ? both : experts);
    scratch(layer, "dnorm", model_.hidden, router);
    scratch_of_buffer(layer, "dy", buffer_rows_, model_.hidden, experts);
    scratch_of_buffer(layer, "dact", owner_rows_, moe_.hidden, experts);
    scratch_of_buffer(layer, "dfc1", owner_rows_, gates() * moe_.hidden, experts);
    // With host_sync the rows that nobody writes keep the value of the first step.
    if (!moe_.host_sync) scratch_of_buffer(layer, "dbuffer", buffer_rows_, model_.hidden, both);
    scratch(layer, "dweights", moe_.top_k, both, Word::wide);
    scratch(layer, "dlogits", moe_.experts, router, Word::wide);
    if (moe_.aux_loss.millionths > 0 || moe_.z_loss.millionths > 0)
      add_common(of(layer, "sums"), "E.sums", 1, moe_.experts + 1, Word::wide,
                 passing(s.router, s.router));
    if (!shared) return;
    scratch(layer, "shared_dact", moe_.shared_hidden, router);
    scratch(layer, "shared_dfc1", gates() * moe_.shared_hidden, router);
    scratch(layer, "shared_dx", model_.hidden, router);
  }

  const Scenario& scenario_;
  const Scenario::Model& model_;
  const Scenario::Model::Moe& moe_;
  const std::vector<Segment> list_;
  const std::vector<StageSegments> of_layer_;
  const std::vector<int> residual_gradients_;
  const OffloadPlan offload_;
  const std::set<std::string> offloaded_;
  // A pack has so many, and the experts' buffers of a source and of an owner.
  const std::int64_t rows_, buffer_rows_, owner_rows_;
  const std::int64_t word_;
  const int head_;  // The number of segments.
  const int slots_;
  int slot_ = 0;
  std::string common_;  // The tensor that is added next has it.
  std::map<std::pair<int, std::string>, std::size_t> places_;
  std::vector<LivingTensor> tensors_;
};

}  // namespace

std::vector<int> residual_gradients(const Scenario& scenario) {
  const std::vector<StageSegments> of_layer = stage_segments(scenario, segments(scenario));
  const int layers = static_cast<int>(of_layer.size());
  std::vector<int> numbers(layers + 1);
  for (int layer = layers; layer >= 0; --layer) {
    const bool follows =
        layer + 2 <= layers && at(of_layer, layer).router == at(of_layer, layer + 1).router;
    at(numbers, layer) = follows ? at(numbers, layer + 2) : layer;
  }
  return numbers;
}

std::string residual_gradient_name(int number) {
  return "residual_gradient." + std::to_string(number);
}

std::string bin_name(int bin) { return "offload.buffer." + std::to_string(bin); }

std::vector<LivingTensor> living_tensors(const Scenario& scenario) {
  return Lister(scenario).build();
}

}  // namespace lockstep
