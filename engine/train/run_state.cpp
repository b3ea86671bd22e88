#include "engine/train/run_state.h"

#include <stdexcept>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "kernels/core/contract.h"
#include "kernels/core/fault.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/fp8.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr const char *kSteps = "steps_done", *kMicrobatches = "microbatches_done",
                     *kRanks = "microbatch_ranks", *kFolds = "gradient_folds";

std::int64_t number_in(const std::string& path, const std::map<std::string, std::string>& metadata,
                       const char* key, std::int64_t least) {
  const auto found = metadata.find(key);
  const std::string text = found == metadata.end() ? "nowhere" : found->second;
  std::size_t used = 0;
  std::int64_t value = -1;
  try {
    value = std::stoll(text, &used);
  } catch (const std::logic_error&) {
  }
  if (value >= least && used == text.size()) return value;
  throw CheckpointRefused(path + ": " + key + " is not a number: " + text);
}

std::string run_fingerprint(const Scenario& scenario) {
  const Scenario plain;
  Scenario run = by_one_rank(scenario);
  run.name = "run";
  run.model.recompute.clear();
  run.data.path = plain.data.path;  // Files may be moved; run.data.digest says which they are.
  run.training.steps = plain.training.steps;
  Scenario::Training::Optimizer& optimizer = run.training.optimizer;
  if (optimizer.schedule == LrSchedule::constant)
    optimizer.decay_steps = plain.training.optimizer.decay_steps;
  run.training.in_flight = plain.training.in_flight;
  run.training.recapture_at.clear();
  run.training.resume_at.clear();
  run.cuda_graph = plain.cuda_graph;
  run.offload = plain.offload;
  run.fp8.save_original_input.clear();
  run.fp8.param_gather = false;
  run.fp8.weight_cache = default_weight_cache(run);
  run.checker = plain.checker;
  run.expect = plain.expect;
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a.
  for (const unsigned char c : canonical_form(run)) hash = (hash ^ c) * 0x100000001b3u;
  return std::to_string(hash);
}

class Parts {
 public:
  Parts(const StepLoop& loop, const Progress& progress, std::int64_t rank, std::int64_t ranks)
      : loop_(loop), progress_(progress), rank_(rank), ranks_(ranks) {}

  void add_weights(bool sharded) {
    for (const ParameterView& p : loop_.parameters().views()) {
      const std::pair<const char*, Tensor<float>> kinds[] = {
          {"weight", p.weight}, {"m", p.m}, {"v", p.v}};
      for (const auto& [kind, tensor] : kinds) {
        add({std::string(kind) + "/" + p.name, p.full_rows, p.full_cols, p.first, !sharded, {}},
            tensor);
        shards.back().holders = at(loop_.parameters().specs(), p.index).place.ranks;
      }
    }
    for (const ExpertState& expert : loop_.expert_states()) {
      if (!expert.bias) continue;
      const std::string layer = of_layer(expert), none;
      const std::string& named = faulty("expert-biases-saved-under-one-name", layer, none);
      add({"expert_bias" + named, 1, expert.bias.cols, 0, true, {}}, expert.bias);
    }
  }

  void add_scaling() {
    const Parameters& parameters = loop_.parameters();
    const bool saves = faulty("checkpoint-leaves-fp8-scaling", true, false);
    const Fp8Scaling &inputs = parameters.scaling_of_inputs(),
                     &gradients = parameters.scaling_of_gradients();
    if (!inputs.history || !saves) return;
    const std::int64_t words = fp8_words(), length = inputs.history.cols;
    const auto pieces = [&](std::int64_t each) { return pieces_of_words(each, {}); };
    add_bits("fp8/history of x and w", 2 * words, length, pieces(2 * length), inputs.history);
    add_bits("fp8/history of dy", words, length, pieces(length), gradients.history);
    add_bits("fp8/exponent of x and w", 1, 2 * words, pieces(2), inputs.exponent);
    add_bits("fp8/exponent of dy", 1, words, pieces(1), gradients.exponent);
  }

  // The run that saves has given each rank the largest of all ranks.
  void add_pending_amaxes() {
    const bool saves = faulty("checkpoint-leaves-pending-amaxes", true, false);
    const Tensor<std::uint32_t> own = loop_.parameters().pending().own;
    if (!own || !saves) return;
    const std::int64_t words = fp8_words();
    add_bits("fp8/pending", 1, 3 * words, pieces_of_words(1, pieces_of_words(2, {})), own);
  }

  void add_gradients() {
    const Parameters& parameters = loop_.parameters();
    for (const ParameterView& p : parameters.views()) {
      const Parameter& parameter = parameters[p.index];
      if (!parameter.gradient) {  // The shard has taken every microbatch.
        add({fold_of(rank_) + p.name, p.full_rows, p.full_cols, p.first, false, {}}, p.gradient);
      } else if (shards.empty() || !shards.back().stored.name.ends_with("/" + p.name)) {
        add_folds(p, parameter);
      }
    }
  }

  // This rank's, or, of experts that lie apart, one for each rank whose rows they have.
  void add_folds(const ParameterView& view, const Parameter& parameter) {
    const ParameterSpec& spec = at(loop_.parameters().specs(), view.index);
    for (std::int64_t source = 0; source < parameter.sources; ++source) {
      const std::int64_t rank =
          parameter.sources == 1 ? rank_ : rank_ - rank_ % parameter.sources + source;
      add({fold_of(rank) + view.name,
           view.full_rows,
           view.full_cols,
           spec.first_row() * spec.cols,
           false,
           {}},
          parameter.of_source(source).gradient);
    }
  }

  // The losses of microbatch m lie in column or row m. The last stage has them, and each layer's
  // stage its router losses.
  void add_losses() {
    const Tensor<float> losses = loop_.losses(), routers = loop_.router_losses();
    const std::int64_t all = progress_.microbatches;
    for (std::int64_t number = rank_, m = 0; number < all; number += ranks_, ++m) {
      if (loop_.has_head()) add({"losses", 1, all, number, false, {}}, losses.columns(m, 1));
      if (!routers) continue;
      const std::int64_t first = number * routers.cols;
      float* const row = routers.data + m * routers.pitch;
      if (2 * std::ssize(loop_.expert_states()) == routers.cols) {
        add({"router_losses", all, routers.cols, first, false, {}}, tensor(row, 1, routers.cols));
        continue;
      }
      for (const ExpertState& expert : loop_.expert_states()) {
        add({"router_losses", all, routers.cols, first + 2 * expert.number, false, {}},
            tensor(row + 2 * expert.number, 1, 2));
      }
    }
  }

  // Only the sums over ranks matter, so the counts of ranks beyond the present number are
  // distributed over these.
  void add_counts() {
    const std::int64_t stride =
        faulty("resume-forgets-the-counts-of-other-ranks", ranks_, progress_.ranks);
    for (const ExpertState& expert : loop_.expert_states()) {
      for (std::int64_t from = rank_; expert.bias && from < progress_.ranks; from += stride) {
        add({"counts of rank " + std::to_string(from) + of_layer(expert),
             2,
             expert.step.cols,
             0,
             false,
             {}},
            {});
        shards.back().counts = expert.step;
        shards.back().stored.values.resize(2 * expert.step.cols);
      }
    }
  }

  std::vector<ResidentShard> shards;

 private:
  std::string fold_of(std::int64_t rank) const {
    return progress_.folds > 1 ? "gradient of rank " + std::to_string(rank) + "/" : "gradient/";
  }
  static std::string of_layer(const ExpertState& expert) {
    return "/layers." + std::to_string(expert.layer);
  }
  // Elements that this rank has side by side: their places in the whole tensor and in its own.
  struct Piece {
    std::int64_t first, own, count;
  };
  using Pieces = std::vector<Piece>;

  // The linear layers in fp8 of all stages, each as often as it has experts.
  std::int64_t fp8_words() const {
    std::int64_t words = 0;
    for (const ParameterSpec& spec : loop_.parameters().specs())
      words += spec.fp8_layer ? spec.experts * spec.place.ranks : 0;
    return words;
  }
  // The stage's own of `each` elements for a word, behind those that `before` ends with.
  Pieces pieces_of_words(std::int64_t each, Pieces before) const {
    const Parameters& parameters = loop_.parameters();
    std::int64_t first = before.empty() ? 0 : 2 * fp8_words();
    std::int64_t own = before.empty() ? 0 : before.back().own + before.back().count;
    for (const ParameterSpec& spec : parameters.specs()) {
      if (!spec.fp8_layer) continue;
      const std::int64_t count = each * spec.experts * spec.place.ranks;
      if (parameters[spec.index].fp8) {
        const bool joins = !before.empty() && before.back().first + before.back().count == first;
        if (!joins)
          before.push_back({faulty("fp8-scaling-of-stages-in-one-place", first, own), own, 0});
        before.back().count += count;
        own += count;
      }
      first += count;
    }
    return before;
  }
  // Words and exponents are stored as the bits of floats. Stages have pieces of the [rows, cols].
  template <class T>
  void add_bits(const char* name, std::int64_t rows, std::int64_t cols, const Pieces& pieces,
                Tensor<T> values) {
    auto* const bits = reinterpret_cast<float*>(values.data);
    for (const Piece& piece : pieces)
      add({name, rows, cols, piece.first, true, {}}, tensor(bits + piece.own, 1, piece.count));
  }
  void add(TensorShard shard, Tensor<float> values) {
    shard.values.resize(values.size());
    shards.push_back({std::move(shard), values});
  }

  const StepLoop& loop_;
  const Progress& progress_;
  const std::int64_t rank_, ranks_;
};

}  // namespace

std::int64_t folds_within_a_step(const Scenario& scenario, std::int64_t ranks) {
  const Sharding strategy = scenario.fsdp.strategy;
  return strategy == Sharding::no_shard || strategy == Sharding::optim ? ranks : 1;
}

std::map<std::string, std::string> metadata_of(const Progress& progress) {
  std::map<std::string, std::string> metadata{{kSteps, std::to_string(progress.steps)}};
  if (progress.microbatches == 0) return metadata;
  metadata[kMicrobatches] = std::to_string(progress.microbatches);
  metadata[kRanks] = std::to_string(progress.ranks);
  metadata[kFolds] = std::to_string(progress.folds);
  return metadata;
}

Progress progress_in(const std::string& path, const std::map<std::string, std::string>& metadata) {
  Progress progress{.steps = number_in(path, metadata, kSteps, 0)};
  if (!metadata.contains(kMicrobatches)) return progress;
  progress.microbatches = number_in(path, metadata, kMicrobatches, 1);
  progress.ranks = number_in(path, metadata, kRanks, 1);
  progress.folds = number_in(path, metadata, kFolds, 1);
  return progress;
}

std::map<std::string, std::string> run_identity(const Scenario& scenario) {
  return {{"contract", std::to_string(kContractVersion)},
          {"pattern", scenario.model.pattern},
          {"run", run_fingerprint(scenario)},
          {"seed", std::to_string(scenario.training.seed)}};
}

std::vector<ResidentShard> resident_shards(const StepLoop& loop, const Progress& progress,
                                           std::int64_t rank, std::int64_t ranks, bool sharded) {
  Parts all(loop, progress, rank, ranks);
  all.add_weights(sharded);
  all.add_scaling();
  if (progress.microbatches > 0) {
    all.add_gradients();
    all.add_losses();
    all.add_counts();
    all.add_pending_amaxes();
  }
  return std::move(all.shards);
}

}  // namespace lockstep
