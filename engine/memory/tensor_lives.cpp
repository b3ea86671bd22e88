#include "engine/memory/tensor_lives.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/memory/time_line.h"
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

// The segments in which the parts of a layer run forward, or the steps of these. Only the parts of
// an `E` may run in different ones.
struct LayerStages {
  int router = -1, preprocess = -1, experts = -1;
};

void note(const Segment& segment, int number, std::vector<LayerStages>& of_layer) {
  for (const Part& part : segment.parts) {
    LayerStages& layer = at(of_layer, part.layer);
    if (part.has(Stage::router)) layer.router = number;
    if (part.has(Stage::preprocess)) layer.preprocess = number;
    if (part.has(Stage::experts)) layer.experts = number;
  }
}

std::vector<LayerStages> segments_of_layers(const Scenario& scenario) {
  const std::vector<Segment> list = segments(scenario);
  std::vector<LayerStages> of_layer(scenario.model.pattern.size());
  for (int i = 0; i < static_cast<int>(list.size()); ++i) note(at(list, i), i, of_layer);
  return of_layer;
}

// Layers of other stages have none.
std::vector<LayerStages> steps_of_layers(const Scenario& scenario, const std::vector<Segment>& list,
                                         const std::vector<Chunk>& chunks, const TimeLine& line) {
  std::vector<LayerStages> of_layer(scenario.model.pattern.size());
  for (const Chunk& chunk : chunks) {
    for (int i = chunk.first_segment; i < chunk.end_segment; ++i)
      note(at(list, i), line.step(chunk.number, i - chunk.first_segment), of_layer);
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
  Lister(const Scenario& scenario, int stage)
      : scenario_(scenario),
        model_(scenario.model),
        moe_(scenario.model.moe),
        list_(segments(scenario)),
        chunks_(chunks_of(scenario, list_, stage)),
        line_(chunks_),
        of_layer_(steps_of_layers(scenario, list_, chunks_, line_)),
        residual_gradients_(residual_gradients(scenario)),
        offloads_(plan_offloads(scenario, stage)),
        rows_(scenario.data.pack_length),
        buffer_rows_(ExpertBuffer(scenario).rows),
        owner_rows_(ExpertBuffer(scenario).owner_rows),
        word_(stores_bf16(scenario) ? 2 : 4),
        head_(line_.last_forward()) {}

  std::vector<LivingTensor> build() {
    for (const Chunk& chunk : chunks_) {
      chunk_ = chunk;
      offloaded_ = offloaded_names(offload());
      for (int i = 0; i < chunk.slots; ++i) {
        slot_ = chunk.first_slot + i;
        list_slot();
        list_gradients();
      }
      list_bins();
    }
    return std::move(tensors_);
  }

 private:
  int layers() const { return static_cast<int>(of_layer_.size()); }
  int backward(int step) const { return line_.backward(step); }
  int arrival() const { return line_.arrival(chunk_.number); }
  int departure() const { return line_.departure(chunk_.number); }
  bool has_other_stages() const { return chunk_.stages > 1; }
  const OffloadPlan& offload() const { return at(offloads_, chunk_.number); }
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
      tensors_.push_back(
          {.name = name, .chunk = chunk_.number, .slot = slot_, .bytes = bytes, .common = common_});
    tensors_[place->second].lives.push_back(life);
  }

  // ---- Tensors of a slot ------------------------------------------------------------------------

  // Written in a forward step, read until another.
  static Life passing(int written, int read) { return {written, read, read}; }
  // Read until the backward pass of a third.
  Life kept(int written, int read, int backward_read) const {
    return {written, read, backward(backward_read)};
  }
  Life kept(int step) const { return kept(step, step, step); }

  void of_rows(int layer, const char* name, std::int64_t cols, Life life,
               Word word = Word::stored) {
    add("layers." + std::to_string(layer) + "." + name, rows_, cols, word, life);
  }
  void of_buffer(int layer, const char* name, std::int64_t rows, std::int64_t cols, Life life) {
    add("layers." + std::to_string(layer) + "." + name, rows, cols, Word::stored, life);
  }

  void list_slot() {
    list_input();
    for (int layer = chunk_.first_layer; layer < chunk_.end_layer; ++layer) {
      list_layer(layer);
      const bool is_output = layer + 1 == chunk_.end_layer && !chunk_.is_last;
      of_rows(layer, "out", model_.hidden, is_output ? output(layer) : residual(layer));
    }
    if (!chunk_.is_last) return;
    const Life in_both = kept(head_);
    add("final_norm.out", rows_, model_.hidden, Word::stored, in_both);
    add("final_norm.rstd", rows_, 1, Word::wide, in_both);
    add("logits", rows_, model_.vocab, Word::stored, in_both);
    add("token_loss", rows_, 1, Word::wide, passing(head_, head_));
    add("loss.maximum", rows_, 1, Word::wide, in_both);
    add("loss.sum", rows_, 1, Word::wide, in_both);
  }

  // Lists the input of the chunk's first layer. An input that another stage sends shares no memory,
  // since it comes while other passes run.
  void list_input() {
    const bool is_received = has_other_stages() && !chunk_.is_first;
    const bool is_alone = faulty("received-input-in-shared-memory", is_received, false);
    if (is_alone) return;
    const int before = chunk_.first_layer - 1;
    add(before < 0 ? "embedding.out" : of(before, "out"), rows_, model_.hidden, Word::stored,
        residual(before));
  }

  // The residual stream behind a layer, or in front of the chunk's first one. The next layer reads
  // it at both ends of its forward pass, and its norm at the end of the backward pass.
  Life residual(int layer) const {
    const bool is_input = layer + 1 == chunk_.first_layer;
    const int written = is_input ? arrival() : at(of_layer_, layer).experts;
    const bool is_last = layer + 1 == layers();
    const LayerStages none{head_, head_, head_};
    const LayerStages& next = is_last ? none : at(of_layer_, layer + 1);
    Life life = kept(written, next.experts, next.router);
    life.end = faulty("input-reused-before-the-backward-replay", life.end, life.forward_end);
    return life;
  }

  // The output of a chunk's last layer. It is copied when the next chunk's pass begins. To another
  // stage it is sent while other passes run: its gradient comes when it has been read. In an
  // evaluation the stage waits for that before its next pass that sends.
  Life output(int layer) const {
    const int written = at(of_layer_, layer).experts;
    const Life sent = kept(written, head_, departure());
    const Life copied = passing(written, line_.arrival(chunk_.number + 1));
    const Life handed_on = faulty("output-kept-until-its-backward-pass", copied, sent);
    const Life life = has_other_stages() ? sent : handed_on;
    return faulty("output-reused-behind-its-pass", life, passing(written, departure()));
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
    const LayerStages& s = at(of_layer_, layer);
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
    const LayerStages& s = at(of_layer_, layer);
    const Life routing = kept(s.router);
    const int combine = faulty("output-dead-behind-its-graph", s.experts, s.router);
    of_rows(layer, "selected", moe_.top_k, kept(s.router, s.preprocess, s.router), Word::wide);
    add(of(layer, "counts"), 1, moe_.experts, Word::wide, passing(s.router, s.preprocess));
    if (moe_.aux_loss.millionths > 0 || moe_.z_loss.millionths > 0) {
      add(of(layer, "slopes"), 1, moe_.experts + 1, Word::wide, routing);
      // Read behind all segments, for the step's sum.
      add(of(layer, "losses"), 1, 2, Word::wide, passing(s.router, departure()));
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

  void list_placement(int layer, const LayerStages& s) {
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
    const int bins = static_cast<int>(offload().sets * std::ssize(offload().buffers));
    for (int bin = 0; bin < bins; ++bin) {
      const auto buffer = static_cast<int>(bin % std::ssize(offload().buffers));
      tensors_.push_back({.name = bin_name(chunk_.number, bin),
                          .chunk = chunk_.number,
                          .bytes = at(offload().buffers, buffer),
                          .is_buffer = true,
                          .is_always_alive = faulty("tail-of-a-copy-out-forgotten", true, false),
                          .lives = lives_without_copies(buffer)});
    }
  }
  // Until the last op that reads it, and from its copy back on, which may begin in the pass before.
  std::vector<Life> lives_without_copies(int buffer) const {
    const auto step = [&](int own) { return line_.step(chunk_.number, own); };
    std::vector<Life> lives;
    for (const OffloadGroup& group : offload().groups) {
      for (const OffloadTensor& tensor : group.tensors) {
        if (tensor.buffer != buffer) continue;
        lives.push_back(passing(step(tensor.written), step(group.last_read)));
        const int begin = group.h2d.begin, head = offload().segments;
        if (offload().in_forward(begin))
          lives.push_back({step(begin), step(begin) - 1, step(head)});
        lives.push_back({step(std::max(begin, head + 1)), step(head), step(group.h2d.end)});
      }
    }
    return lives;
  }

  // ---- Gradients --------------------------------------------------------------------------------

  // Written in the backward pass of a step, read until that of an earlier one.
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
    if (chunk_.is_last) {
      const Life at_head = gradient(head_, head_);
      add_common("dlogits", "dlogits", rows_, model_.vocab, Word::stored, at_head);
      add_common("dfinal_norm", "dfinal_norm", rows_, model_.hidden, Word::stored, at_head);
      list_residual_gradient(chunk_.end_layer, head_);
    } else if (!has_other_stages()) {
      const int written = line_.arrival(chunk_.number + 1);
      add("output_gradient", rows_, model_.hidden, Word::stored,
          gradient(faulty("chunk-gradient-reused-before-its-pass", written, departure()),
                   router_before(chunk_.end_layer)));
    }
    for (int layer = chunk_.end_layer - 1; layer >= chunk_.first_layer; --layer) {
      list_residual_gradient(layer, at(of_layer_, layer).router);
      list_scratch(layer);
    }
  }
  void list_residual_gradient(int layer, int written) {
    add_common(residual_gradient_name(at(residual_gradients_, layer)),
               residual_gradient_name(layer % 2), rows_, model_.hidden, Word::stored,
               gradient(written, router_before(layer)));
  }
  // The step of the layer before, or the one in which the chunk's input comes.
  int router_before(int layer) const {
    return layer == chunk_.first_layer ? arrival() : at(of_layer_, layer - 1).router;
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
    const LayerStages& s = at(of_layer_, layer);
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
  const std::vector<Chunk> chunks_;
  const TimeLine line_;
  const std::vector<LayerStages> of_layer_;  // In steps of the time line.
  const std::vector<int> residual_gradients_;
  const std::vector<OffloadPlan> offloads_;
  // A pack has so many, and the experts' buffers of a source and of an owner.
  const std::int64_t rows_, buffer_rows_, owner_rows_;
  const std::int64_t word_;
  const int head_;  // The last forward step.
  // What is being listed.
  Chunk chunk_;
  std::set<std::string> offloaded_;
  int slot_ = 0;
  std::string common_;  // The tensor that is added next has it.
  std::map<std::pair<int, std::string>, std::size_t> places_;
  std::vector<LivingTensor> tensors_;
};

}  // namespace

std::vector<int> residual_gradients(const Scenario& scenario) {
  const std::vector<LayerStages> of_layer = segments_of_layers(scenario);
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

std::string bin_name(int chunk, int bin) {
  const std::string own = chunk == 0 ? "" : "chunks." + std::to_string(chunk) + ".";
  return own + "offload.buffer." + std::to_string(bin);
}

std::vector<LivingTensor> living_tensors(const Scenario& scenario, int stage) {
  return Lister(scenario, stage).build();
}

}  // namespace lockstep
