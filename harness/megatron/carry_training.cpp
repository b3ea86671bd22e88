// Ranks, batches, documents, steps, the optimizer.
#include <algorithm>

#include "harness/megatron/carrier.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMost = 1 << 20;  // So that products do not overflow; far above any range.
constexpr std::int64_t kMostMicrobatches = 1024;

}  // namespace

void Carrier::ranks_and_batches() {
  for (const char* name : {"micro_batch_size", "global_batch_size", "rampup_batch_size",
                           "data_parallel_size", "world_size"})
    use(name);
  std::int64_t others = 1;
  for (const char* name :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"})
    others *= std::clamp<std::int64_t>(request_.integer(name).value_or(1), 1, 1 << 12);
  std::int64_t ranks = 1;
  const char* unsaid = "";
  if (const auto given = request_.integer("data_parallel_size")) {
    ranks = *given;
  } else if (request_.world_size()) {
    ranks = *request_.world_size() / others;
  } else {
    unsaid = "the number of processes is not in the file";
  }
  ranks = std::clamp<std::int64_t>(ranks, 1, kMost);
  // Most of what sharding may get wrong needs a second rank.
  const bool needs_two = small() && sharding_ && ranks == 1;
  ranks_ = needs_two ? 2 : sized(ranks, 2);
  set("parallel.data", ranks_, "data_parallel_size");
  if (*unsaid != '\0' || needs_two) {
    change("parallel.data", *unsaid != '\0' ? "the launcher's" : std::to_string(ranks),
           std::to_string(ranks_),
           unsaid + std::string(*unsaid != '\0' && needs_two ? "; " : "") +
               (needs_two ? "sharding on one rank tests little" : ""));
  } else {
    made_small("parallel.data", std::to_string(ranks), std::to_string(ranks_));
  }
  const std::int64_t batch =
      std::clamp<std::int64_t>(request_.integer("micro_batch_size").value_or(1), 1, kMost);
  micro_batch_ = sized(batch, 2);
  asked_batch_ = batch;
  const auto count = [&](std::int64_t global) {
    return std::max<std::int64_t>(1, global / (batch * ranks));
  };
  const std::int64_t of_rank = count(request_.integer("global_batch_size").value_or(batch * ranks));
  std::int64_t microbatches = sized(of_rank, 4);
  made_small("training.microbatches", std::to_string(of_rank), std::to_string(microbatches));
  if (microbatches > kMostMicrobatches) {
    change("training.microbatches", std::to_string(microbatches), std::to_string(kMostMicrobatches),
           "a step has at most so many");
    microbatches = kMostMicrobatches;
  }
  const std::vector<std::string> ramp = request_.list("rampup_batch_size");
  if (!ramp.empty()) {
    leave(WithoutKey::machinery, "rampup_batch_size",
          "training.change_microbatches_at is nearest: one change, at step 1");
    set("training.change_microbatches_at",
        "[{step: 1, microbatches: " + std::to_string(microbatches) + "}]");
    set("training.microbatches", std::max<std::int64_t>(1, microbatches / 2), "global_batch_size");
  } else {
    set("training.microbatches", microbatches, "global_batch_size");
  }
  // As deep as 1F1B's warm-up on the first stage.
  const std::int64_t stages = request_.integer("pipeline_model_parallel_size").value_or(1);
  set("training.in_flight", std::clamp<std::int64_t>(stages, 1, ramp.empty() ? microbatches : 1));
}

void Carrier::data() {
  const std::int64_t align =
      std::max<std::int64_t>(1, request_.integer("pad_packed_seq_alignment").value_or(1));
  const std::int64_t length = request_.integer("seq_length").value_or(0);
  for (const char* name :
       {"sft", "reset_position_ids", "reset_attention_mask", "max_seqlen_per_dp_cp_rank",
        "seq_length", "thd_max_packed_sequences", "cuda_graph_max_packed_seqs",
        "use_varlen_dataset", "dataloader_inter_document_masking", "encoder_seq_length"})
    use(name);
  packed_ =
      request_.flag("sft") || request_.flag("reset_attention_mask") ||
      request_.flag("use_varlen_dataset") || request_.flag("dataloader_inter_document_masking") ||
      request_.text("max_seqlen_per_dp_cp_rank") || request_.text("thd_max_packed_sequences") ||
      request_.text("cuda_graph_max_packed_seqs") || request_.text("pad_packed_seq_alignment") ||
      request_.text("thd_tail_padding_policy");
  std::int64_t row = length > 0 ? length : required("max_seqlen_per_dp_cp_rank");
  const std::int64_t asked = std::clamp<std::int64_t>(row, 1, kMost);
  row = sized(asked, 64);
  rows_ = row * micro_batch_;
  set("data.pack_length", rows_, "seq_length");
  made_small("data.pack_length", std::to_string(asked * asked_batch_), std::to_string(rows_));
  set("data.kind", "distribution");
  if (packed_) {
    set("data.distribution.shape", "uniform");
    set("data.distribution.max", std::max<std::int64_t>(1, rows_ / 2));
    result_.machinery.push_back(
        {"documents", "in packs",
         "their lengths are not in the file: uniform up to half a pack here"});
  } else {
    set("data.distribution.shape", "equal");
    set("data.distribution.max", row, "seq_length");
    set("data.distribution.min", row);
    set("data.distribution.fill", "1");
  }
  if (request_.text("pad_packed_seq_alignment"))
    set_sized("data.align", align, 4, "pad_packed_seq_alignment");
  if (const auto policy = request_.text("thd_tail_padding_policy"))
    set("data.tail", *policy, "thd_tail_padding_policy");
  std::optional<std::int64_t> most = request_.integer("thd_max_packed_sequences");
  if (!most) most = request_.integer("cuda_graph_max_packed_seqs");
  asked_slots_ = most.value_or(0);
  if (graphs_)
    set("cuda_graph.max_packed_seqs",
        most      ? sized(*most, 16)
        : packed_ ? 16
                  : micro_batch_,
        most ? "thd_max_packed_sequences" : "");
}

void Carrier::steps() {
  for (const char* name :
       {"train_iters", "train_samples", "eval_interval", "eval_iters", "lr_warmup_iters",
        "lr_decay_iters", "lr_warmup_fraction", "lr_decay_samples", "lr_warmup_samples"})
    use(name);
  const std::int64_t least = warmup_ + 3;
  std::int64_t steps = request_.integer("train_iters").value_or(0);
  if (steps == 0) {
    const std::int64_t batch =
        std::max<std::int64_t>(1, request_.integer("global_batch_size").value_or(1));
    steps = request_.integer("train_samples").value_or(0) / batch;
  }
  const std::int64_t asked = steps;
  steps = small() || steps == 0 ? least : std::clamp<std::int64_t>(steps, 1, 1'000'000);
  set("training.steps", steps, "train_iters");
  if (asked > 0) made_small("training.steps", std::to_string(asked), std::to_string(steps));
  const std::int64_t interval = request_.integer("eval_interval").value_or(0);
  const bool evaluates = request_.is_given("eval_interval") && interval > 0 &&
                         request_.number("eval_iters").value_or(1) > 0;
  if (evaluates) {
    const std::int64_t every = small() ? 2 : std::min(interval, steps);
    set("training.eval_every", every, "eval_interval");
    made_small("training.eval_every", std::to_string(interval), std::to_string(every));
  }
  const std::int64_t warm = request_.integer("lr_warmup_iters").value_or(0);
  const bool rises = warm > 0 || request_.number("lr_warmup_fraction").value_or(0) > 0 ||
                     request_.integer("lr_warmup_samples").value_or(0) > 0;
  if (rises)
    set("training.optimizer.lr_warmup", small() ? 1 : std::clamp<std::int64_t>(warm, 1, steps),
        "lr_warmup_iters");
  const std::int64_t decay = request_.integer("lr_decay_iters").value_or(steps);
  set("training.optimizer.decay_steps",
      small() ? steps : std::clamp<std::int64_t>(decay, 1, 1'000'000), "lr_decay_iters");
}

void Carrier::optimizer() {
  for (const char* name : {"adam_beta1", "adam_beta2", "lr_decay_style"}) use(name);
  const double beta1 = request_.number("adam_beta1").value_or(0.9),
               beta2 = request_.number("adam_beta2").value_or(0.999);
  set("training.optimizer.betas", yaml_list({yaml_number(beta1), yaml_number(beta2)}),
      "adam_beta1");
  const std::string style = request_.text("lr_decay_style").value_or("linear");
  if (style == "constant" || style == "linear" || style == "cosine") {
    set("training.optimizer.schedule", style, "lr_decay_style");
  } else {
    leave(WithoutKey::arithmetic, "lr_decay_style", "here it is constant, linear or cosine");
  }
  if (!request_.text("lr"))
    change("training.optimizer.lr", "none", "the default", "no learning rate is given");
}

}  // namespace lockstep
