#include "scenarios/schema/schema.h"

#include "scenarios/documents/layout.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/schema/judge.h"
#include "scenarios/schema/make_key.h"
#include "scenarios/schema/texts.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// Documents are numbered and measured in 32 bits.
constexpr std::int64_t kMostLength = 2147483647;
// No more than keeps factor * top_k * pack_length in 64 bits.
constexpr std::int64_t kMostFactor = 100'000'000'000;
// Times the number of a stage it stays in 64 bits.
constexpr std::int64_t kMostDelta = std::int64_t{1} << 50;

constexpr std::int64_t whole(std::int64_t value) { return value * 1'000'000; }

// Left out like a key of unless(): its default is another key's value.
Key max_seqlen_key() {
  Key made =
      key("cuda_graph.max_seqlen",
          {"the longest document that captured launches are made for, at most pack_length; a "
           "microbatch with a longer one falls back to eager; computed: data.pack_length",
           "tokens"},
          Int{1, 1048576}, longest_captured,
          [](Scenario& s, std::int64_t longest) { s.cuda_graph.max_seqlen = longest; });
  made.copy = [](const Scenario& from, Scenario& to) {
    to.cuda_graph.max_seqlen = from.cuda_graph.max_seqlen;
  };
  made.is_left_out = [](const Scenario& s) { return longest_captured(s) == s.data.pack_length; };
  return made;
}

#define AT(member) \
  [](auto& s) -> auto& { return s.member; }

void add_head(std::vector<Key>& keys) {
  // `schema` has no member: it is 1 (Y07 sees to that).
  Key schema("schema", {"the version that the other keys belong to; required"}, Int{1, 1});
  schema.read = [](const Item& item, Scenario&) {
    const auto version = Int{INT64_MIN, INT64_MAX}.read(item);
    if (!version || *version == 1) return;
    item.faults.add("Y07", item.node.place, item.key, "is " + std::to_string(*version),
                    "only schema 1 is read", "1");
  };
  schema.write = [](const Scenario&, Style) { return std::string("1"); };
  keys.push_back(schema);
  keys.push_back(
      key("name", {"the name in reports and file names; required"}, name_text(), AT(name)));
  keys.push_back(key("description", {"what the scenario is for; changes nothing"},
                     description_text(), AT(description)));
  keys.push_back(
      key("numerics",
          {"the precisions: the file is run once in each; required in files under scenarios/"},
          Set<Numerics>{1}, AT(numerics)));
}

void add_model(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {key("model.pattern",
           {"one symbol a layer: M Mamba-2, * attention, - dense MLP, E mixture of experts; quote "
            "it, since a bare "
            "leading * is an alias (Y02)",
            "layers"},
           pattern_text(), AT(model.pattern)),
       key("model.hidden", {"width of the residual stream", "features"}, Int{1, 16384},
           AT(model.hidden)),
       key("model.vocab",
           {"size of the vocabulary; computed: 256 for data.kind text, jsonl (byte tokens)",
            "tokens"},
           Int{2, 262144}, AT(model.vocab)),
       key("model.tied_embedding", {"the head shares the embedding's weight"}, Bool{},
           AT(model.tied_embedding)),
       key("model.norm_eps", {"epsilon of every RMSNorm"}, Number{.above_min = true},
           AT(model.norm_eps)),
       key("model.attention.heads", {"query heads", "heads"}, Int{1, 256},
           AT(model.attention.heads)),
       key("model.attention.kv_heads", {"heads of keys and values", "heads"}, Int{1, 256},
           AT(model.attention.kv_heads)),
       key("model.attention.head_dim", {"width of one head", "features"}, Int{2, 128, true},
           AT(model.attention.head_dim)),
       key("model.attention.rope_base",
           {"base of the rotary angles; positions restart in every document"},
           Number{.min = 1, .above_min = true}, AT(model.attention.rope_base)),
       key("model.mamba.d_inner", {"inner width", "features"}, Int{1, 32768},
           AT(model.mamba.d_inner)),
       key("model.mamba.head_dim",
           {"width of one head; there are d_inner / head_dim heads", "features"}, Int{1, 128},
           AT(model.mamba.head_dim)),
       key("model.mamba.groups", {"groups of B and C", "groups"}, Int{1, 64},
           AT(model.mamba.groups)),
       key("model.mamba.state", {"state size", "features"}, Int{1, 256}, AT(model.mamba.state)),
       key("model.mamba.conv_width", {"taps of the causal convolution", "rows"}, Int{1, 8},
           AT(model.mamba.conv_width)),
       key("model.mamba.chunk", {"chunk of the scan, counted from each document's start", "tokens"},
           Int{1, 256}, AT(model.mamba.chunk)),
       key("model.mlp.hidden", {"inner width of a dense MLP", "features"}, Int{1, 65536},
           AT(model.mlp.hidden)),
       key("model.mlp.activation", {"activation of dense MLPs, experts and the shared expert"},
           Word<MlpActivation>{}, AT(model.mlp.activation)),
       key("model.moe.experts", {"experts of a layer", "experts"}, Int{2, 256},
           AT(model.moe.experts)),
       key("model.moe.top_k",
           {"experts that a token is sent to; ties go to the lowest index", "experts"}, Int{1, 16},
           AT(model.moe.top_k)),
       key("model.moe.hidden", {"inner width of one expert", "features"}, Int{1, 65536},
           AT(model.moe.hidden)),
       key("model.moe.shared_hidden",
           {"inner width of the shared expert; 0: there is none", "features"}, Int{0, 65536},
           AT(model.moe.shared_hidden)),
       key("model.moe.router", {"score function of the router"}, Word<Router>{},
           AT(model.moe.router)),
       key("model.moe.expert_bias", {"selection bias, updated once a step from the tokens counted"},
           Bool{}, AT(model.moe.expert_bias)),
       key("model.moe.capacity_factor",
           {"rows of an expert: ceil(factor * top_k * pack_length / experts), exact; none: "
            "dropless"},
           OrWord<RatioType>{{1, kMostFactor}, "none"}, AT(model.moe.capacity_factor)),
       key("model.moe.pad_to_capacity",
           {"every expert gets exactly its capacity (drop-and-pad, static shapes); computed: false "
            "if capacity_factor "
            "is none"},
           Bool{}, AT(model.moe.pad_to_capacity)),
       key("model.moe.host_sync",
           {"dispatch may read the counts on the host (dynamic shapes only)"}, Bool{},
           AT(model.moe.host_sync)),
       key("model.moe.aux_loss", {"coefficient of the load-balancing loss; 0: off"},
           RatioType{0, whole(1)}, AT(model.moe.aux_loss)),
       key("model.moe.z_loss", {"coefficient of the router's z-loss; 0: off"},
           RatioType{0, whole(1)}, AT(model.moe.z_loss)),
       key("model.dropout", {"rate of hidden dropout (attention probabilities are never dropped)"},
           RatioType{0, 900'000}, AT(model.dropout)),
       key("model.recompute",
           {"activations that are not saved but computed again in the backward pass"},
           Set<Recompute>{}, AT(model.recompute)),
       key("model.core_attention",
           {"implementation of attention; cudnn is judged against its own eager run, not the "
            "oracle"},
           Word<CoreAttention>{}, AT(model.core_attention))});
}

Key documents_key() {
  Key made =
      key("data.documents",
          {"kind lengths: document lengths by step and global microbatch (0 is legal, [] is no "
           "document). "
           "Shorter lists repeat: documents[s mod S][g mod G]; tokens never repeat",
           "tokens"},
          List<List<List<Int>>>{{{Int{0, kMostLength}}, 1}, 1}, AT(data.documents));
  return only_for(nested(std::move(made), 3,
                         "[step][microbatch][length], such as [[[20, 30], [40]]] for two "
                         "microbatches, the first of two documents"),
                  DataKind::lengths);
}

Key histogram_key() {
  Key made =
      key("data.distribution.histogram",
          {"shape histogram: pairs of documents (0..65536, increasing) and packs (1 or more). "
           "Not given, they are read from the file at data.path: lines of `documents packs`"},
          List<List<Int>>{{Int{0, 2147483647}, 2, 2}}, AT(data.distribution.histogram));
  return added(
      nested(std::move(made), 2,
             "pairs of documents and packs, such as [[12, 3], [40, 1]] for 3 packs of 12"));
}

void add_data(std::vector<Key>& keys) {
  const auto drawn = [](Key key) { return only_for(std::move(key), DataKind::distribution); };
  const auto stored = [](Key key) {
    return only_for(std::move(key), DataKind::text, DataKind::jsonl);
  };
  keys.insert(
      keys.end(),
      {key("data.kind", {"source of the documents"}, Word<DataKind>{}, AT(data.kind)),
       key("data.pack_length", {"rows of a microbatch", "rows"}, Int{1, 1048576},
           AT(data.pack_length)),
       documents_key(),
       drawn(key("data.distribution.shape",
                 {"kind distribution: shape of the drawn lengths; measured follows documents a "
                  "pack with P50 12, P90 "
                  "43, P99 106, at most 358; published also has 64 for 96 % of the packs; "
                  "histogram follows data.distribution.histogram"},
                 Word<Shape>{}, AT(data.distribution.shape))),
       drawn(key("data.distribution.min", {"shortest document, at most pack_length", "tokens"},
                 Int{0, 1048576}, AT(data.distribution.min))),
       drawn(
           key("data.distribution.max",
               {"longest document, min..pack_length; for shape equal the length of all; computed: "
                "pack_length for published, histogram",
                "tokens"},
               Int{0, 1048576}, AT(data.distribution.max))),
       drawn(key("data.distribution.median",
                 {"median of shape lognormal, at most pack_length; computed: pack_length if that "
                  "is shorter and the "
                  "shape another",
                  "tokens"},
                 Int{1, 1048576}, AT(data.distribution.median))),
       drawn(key("data.distribution.sigma", {"sigma of shape lognormal"}, RatioType{0, whole(4)},
                 AT(data.distribution.sigma))),
       drawn(key("data.distribution.empty", {"share of documents that are made empty"},
                 RatioType{0, whole(1)}, AT(data.distribution.empty))),
       drawn(key("data.distribution.fill", {"share of the rows to fill"}, RatioType{0, whole(1)},
                 AT(data.distribution.fill))),
       drawn(key("data.distribution.seed", {"seed of the drawn lengths"}, Int{0, kMostSeed},
                 AT(data.distribution.seed))),
       drawn(histogram_key()),
       stored(key("data.path",
                  {"kinds text, jsonl: folder of text files (walked in byte order, links not "
                   "followed) or JSONL file, "
                   "relative to this file. Bytes are tokens; a file or record is a document "
                   "(`text`, or `messages` as "
                   "\"role: content\\n\"), packed next-fit, cyclically. Kind distribution: see "
                   "data.distribution.histogram"},
                  path_text(), AT(data.path))),
       stored(key(
           "data.digest",
           {"MD5 of the bytes at data.path; written by tools, other bytes are then refused (Y08)"},
           digest_text(), AT(data.digest))),
       key("data.long_documents",
           {"policy for documents longer than pack_length; computed: split for text, jsonl. A "
            "piece is a document"},
           Word<LongDocuments>{}, AT(data.long_documents)),
       key("data.mask.document_end",
           {"false: the last token of a piece made by split has the next byte as target. A "
            "document's own last token "
            "never has a target"},
           Bool{}, AT(data.mask.document_end)),
       key("data.mask.prefix",
           {"first rows of every document that are masked (row i predicts token i + 1)", "rows"},
           Int{0, 1048576}, AT(data.mask.prefix)),
       key("data.mask.rate",
           {"share of the other targets that are masked, drawn from training.seed"},
           RatioType{0, whole(1)}, AT(data.mask.rate)),
       key("data.mask.microbatches",
           {"global microbatches that are masked entirely, in every step"}, List<Int>{kAnyInt},
           AT(data.mask.microbatches)),
       only_for(key("data.mask.roles",
                    {"jsonl `messages`: only bytes of these roles' contents are targets"},
                    List<Text>{role_text()}, AT(data.mask.roles)),
                DataKind::jsonl),
       key("data.tail",
           {"rows after the last document: a slot of its own that counts against max_packed_seqs, "
            "or part of the last "
            "slot, if any. They are padding in both and belong to no document"},
           Word<Tail>{}, AT(data.tail)),
       key("data.align", {"slot rows are multiples of this", "rows"}, Int{1, 256}, AT(data.align)),
       key("data.gaps", {"padding rows after every non-empty document", "rows"}, Int{0, 256},
           AT(data.gaps))});
}

void add_training(std::vector<Key>& keys) {
  const List<Number> two_betas{Number{.min = 0, .max = 1, .below_max = true}, 2, 2};
  const auto betas = [](const Scenario& s) {
    return std::vector{s.training.optimizer.beta1, s.training.optimizer.beta2};
  };
  const auto set_betas = [](Scenario& s, const std::vector<double>& pair) {
    s.training.optimizer.beta1 = pair[0];
    s.training.optimizer.beta2 = pair[1];
  };
  keys.insert(
      keys.end(),
      {key("training.steps", {"optimizer steps", "steps"}, Int{1, 1000000}, AT(training.steps)),
       key("training.microbatches", {"microbatches a step and rank", "microbatches"}, Int{1, 1024},
           AT(training.microbatches)),
       counts_if(
           key("training.in_flight",
               {"most microbatches between forward and backward (F F F B F B B B for 3 of 4); "
                "computed: the smallest microbatch count if that is less; by the schedule where "
                "there are chunks, stages or gpipe",
                "microbatches"},
               Int{1, 16}, AT(training.in_flight)),
           [](const Scenario& s) { return !depth_follows(s); }),
       key("training.optimizer.lr", {"peak learning rate"}, Number{}, AT(training.optimizer.lr)),
       key("training.optimizer.min_lr", {"learning rate at the end of the decay, at most lr"},
           Number{}, AT(training.optimizer.min_lr)),
       key("training.optimizer.schedule", {"decay from lr to min_lr"}, Word<LrSchedule>{},
           AT(training.optimizer.schedule)),
       key("training.optimizer.lr_warmup",
           {"steps of linear rise, at most training.steps", "steps"}, Int{0, 1000000},
           AT(training.optimizer.lr_warmup)),
       key("training.optimizer.decay_steps",
           {"steps until min_lr is reached; computed: training.steps", "steps"}, Int{1, 1000000},
           AT(training.optimizer.decay_steps)),
       key("training.optimizer.weight_decay",
           {"decoupled weight decay; not on gains, biases and A_log, D"}, Number{},
           AT(training.optimizer.weight_decay)),
       key("training.optimizer.betas", {"beta1, beta2 of AdamW"}, two_betas, betas, set_betas),
       key("training.optimizer.eps", {"epsilon of AdamW"}, Number{.above_min = true},
           AT(training.optimizer.eps)),
       key("training.optimizer.clip", {"greatest global gradient norm; 0: no clipping"}, Number{},
           AT(training.optimizer.clip)),
       key("training.seed", {"seed of weights, tokens, dropout and random masks"},
           Int{0, kMostSeed}, AT(training.seed)),
       key("training.eval_every",
           {"an evaluation (forward only, eager; a graph of its own under full_iteration) after "
            "every n-th step, at "
            "most training.steps; 0: never. Kinds lengths and distribution: that step's layouts "
            "with other tokens; "
            "text, jsonl: the last packs, never trained on",
            "steps"},
           Int{0, 1000000}, AT(training.eval_every)),
       key("training.recapture_at",
           {"steps before which all graphs are torn down and captured again", "steps"},
           List<Int>{kAnyInt}, AT(training.recapture_at)),
       key("training.change_microbatches_at", {"microbatch counts that hold from a step on"},
           List<MicrobatchChangeType>{}, AT(training.change_microbatches_at)),
       added(key("training.resume_at",
                 {"where a judged run is saved, destroyed and loaded: before that step, or within "
                  "it when that many microbatches of all ranks are done; on `data` ranks from "
                  "there on; computed: parallel.data"},
                 List<ResumeType>{{}, 0, 16}, AT(training.resume_at)))});
}

void add_machinery(std::vector<Key>& keys) {
  const auto unit = [](const Scenario& s) {
    return UnitType::Value{s.fsdp.unit, s.fsdp.unit_is_list};
  };
  const auto set_unit = [](Scenario& s, const UnitType::Value& value) {
    s.fsdp.unit = value.blocks;
    s.fsdp.unit_is_list = value.is_list;
  };
  keys.insert(
      keys.end(),
      {key("cuda_graph.impl",
           {"what is captured: nothing, parts of blocks, or the whole iteration"},
           Word<GraphImpl>{}, AT(cuda_graph.impl)),
       key("cuda_graph.modules", {"parts that are captured under impl partial; []: whole layers"},
           Set<GraphModule>{}, AT(cuda_graph.modules)),
       key("cuda_graph.warmup_steps",
           {"eager steps before capture; step number warmup_steps is the first replayed", "steps"},
           Int{0, 100}, AT(cuda_graph.warmup_steps)),
       key("cuda_graph.max_packed_seqs",
           {"capacities of the graphs, empty slots included; a microbatch with more slots than the "
            "largest falls back "
            "to eager",
            "slots"},
           Buckets{}, AT(cuda_graph.max_packed_seqs)),
       key("cuda_graph.graph_memory_limit",
           {"above it the least recently used bucket is evicted; 0: no limit", "bytes"}, Int{},
           AT(cuda_graph.graph_memory_limit)),
       max_seqlen_key(),
       added(
           key("cuda_graph.evaluation",
               {"what evaluations do under impl partial: run eagerly, or replay forward graphs of "
                "their own"},
               Word<GraphEvaluation>{}, AT(cuda_graph.evaluation))),
       added(key("cuda_graph.capture_passes",
                 {"forward and backward passes on a dummy pack before each region is captured, "
                  "with its hooks around them",
                  "passes"},
                 Int{0, 3}, AT(cuda_graph.capture_passes))),
       added(key("cuda_graph.shared_memory",
                 {"tensors of all slots lie in one piece of memory, and those that are never alive "
                  "together share bytes"},
                 Bool{}, AT(cuda_graph.shared_memory))),
       key("offload.modules", {"activations that are offloaded to the host; []: off"},
           Set<OffloadModule>{}, AT(offload.modules)),
       key("offload.fraction",
           {"of n eligible groups floor(n * (1 - fraction)) stay, exact, counted from the end of "
            "execution order"},
           RatioType{0, whole(1)}, AT(offload.fraction)),
       key("offload.min_bytes", {"smaller tensors stay", "bytes"}, Int{}, AT(offload.min_bytes)),
       key("offload.max_inflight",
           {"most copies to the host that are not yet awaited; 0: wait for each", "copies"},
           OrWord<Int>{{0, 1024}, "unlimited"}, AT(offload.max_inflight)),
       key("offload.delay_until_cuda_graph",
           {"copies of expert_fc1, moe_act start after the next graph launch"}, Bool{},
           AT(offload.delay_until_cuda_graph)),
       key("offload.pool_slack", {"pinned buffers per shape beyond the plan's need", "buffers"},
           Int{0, 64}, AT(offload.pool_slack)),
       added(key("offload.captured",
                 {"copies of groups that lie in graphs are nodes of these graphs"}, Bool{},
                 AT(offload.captured))),
       added(
           key("offload.delta_bytes",
               {"before `fraction`, pipeline stage s keeps groups until they have s times as many "
                "bytes of a microbatch: its last chunk's first, in order of execution",
                "bytes"},
               Int{0, kMostDelta}, AT(offload.delta_bytes))),
       key("fsdp.strategy", {"what is sharded over the ranks"}, Word<Sharding>{},
           AT(fsdp.strategy)),
       key("fsdp.double_buffer",
           {"two buffer slots with a plan frozen before capture; false: buffers come and go"},
           Bool{}, AT(fsdp.double_buffer)),
       key("fsdp.persist_buf_on_alloc_fail",
           {"a unit that does not fit the pool has a persistent buffer, for good"}, Bool{},
           AT(fsdp.persist_buf_on_alloc_fail)),
       key("fsdp.unit",
           {"blocks of a unit (the last unit may be smaller), or a list of blocks per unit",
            "blocks"},
           UnitType{}, unit, set_unit),
       key("fsdp.prefetch", {"units gathered ahead", "units"}, Int{0, 2}, AT(fsdp.prefetch)),
       key("fsdp.reduction",
           {"reduction of gradients: in rank order in fp32, or the library's, judged against an "
            "eager run of the same "
            "collective"},
           Word<Reduction>{}, AT(fsdp.reduction)),
       key("fsdp.bucket_bytes",
           {"embedding and head are cut into buckets of this size; 0: one each", "bytes"}, Int{},
           AT(fsdp.bucket_bytes)),
       key("fsdp.nccl_ub", {"registered buffers"}, Bool{}, AT(fsdp.nccl_ub))});
}

void add_parallel(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {key("parallel.data", {"data parallel size", "ranks"}, Int{1, 64}, AT(parallel.data)),
       key("parallel.context", {"context parallel size; only 1 is built (L00)", "ranks"},
           Int{1, 64}, AT(parallel.context)),
       key("parallel.tensor", {"tensor parallel size; only 1 is built (L00)", "ranks"}, Int{1, 64},
           AT(parallel.tensor)),
       key("parallel.expert",
           {"ranks of parallel.data over which the experts of a layer lie; the others are replicas",
            "ranks"},
           Int{1, 64}, AT(parallel.expert)),
       key("parallel.pipeline",
           {"pipeline stages; rank p x parallel.data + d is rank d of stage p", "ranks"},
           Int{1, 64}, AT(parallel.pipeline)),
       key("parallel.transport",
           {"local: virtual ranks in one process; shm: a process a rank, simulated device; nccl: a "
            "process a GPU; "
            "auto: nccl if a launcher set ranks, else local"},
           Word<Transport>{}, AT(parallel.transport)),
       added(key("parallel.chunks",
                 {"pieces of the model on each pipeline stage; the blocks are cut into pipeline x "
                  "chunks pieces",
                  "chunks"},
                 Int{1, 128}, AT(parallel.chunks))),
       added(key("parallel.schedule",
                 {"order of the passes: 1f1b for one chunk, interleaved for several, or all "
                  "forward passes first (gpipe)"},
                 Word<PipelineSchedule>{}, AT(parallel.schedule))),
       unless(key("parallel.group",
                  {"microbatches that run through one chunk before the next chunk has its turn; "
                   "computed: parallel.pipeline",
                   "microbatches"},
                  Int{1, 1024}, AT(parallel.group)),
              [](const Scenario& s) { return s.parallel.group == s.parallel.pipeline; })});
}

void add_judging(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {key("checker.hazards", {"happens-before checking"}, Bool{}, AT(checker.hazards)),
       key("checker.poison",
           {"memory that is filled with signalling NaN; fresh and freed always on the simulated "
            "device"},
           Set<Poison>{}, AT(checker.poison)),
       key("checker.delays",
           {"spinning kernels on a stream of one rank or all (the default); on the simulated "
            "device spin counts turns",
            "us"},
           List<DelayType>{}, AT(checker.delays)),
       key("checker.schedule.kind",
           {"order in which the simulated device runs its streams; a GPU runs as it likes"},
           Word<ScheduleKind>{}, AT(checker.schedule.kind)),
       key("checker.schedule.depth", {"depth of kind pct (probabilistic concurrency testing)"},
           Int{1, 8}, AT(checker.schedule.depth)),
       key("checker.schedule.seed", {"seed of the first schedule; each further schedule adds 1"},
           Int{0, kMostSeed}, AT(checker.schedule.seed)),
       key("checker.schedule.count",
           {"schedules that are run; all must give the same bits", "schedules"}, Int{1, 1000000},
           AT(checker.schedule.count)),
       key("expect.verdict", {"the verdict that passes `verify`"}, Word<ExpectedVerdict>{},
           AT(expect.verdict)),
       key("expect.error", {"the rule that must refuse the file"}, Name{rule_names()},
           AT(expect.error)),
       key("expect.judge", {"with verdict violated: the judge that must find it; none: any"},
           Judge(), AT(expect.judge)),
       key("expect.counters",
           {"values of counters that are checked besides the built-in vacuity rules"},
           CountersType{}, AT(expect.counters))});
}

void add_fp8(std::vector<Key>& keys) {
  std::vector<Key> made{
      added(key("fp8.recipe",
                {"exponent of an operand: from the operand itself, or from those of earlier steps"},
                Word<Fp8Recipe>{}, AT(fp8.recipe))),
      added(key("fp8.history", {"recipe delayed: amaxes that an operand remembers", "steps"},
                Int{1, 1024}, AT(fp8.history))),
      added(key("fp8.algorithm",
                {"recipe delayed: the amax that decides, the largest remembered or the last"},
                Word<Fp8Algorithm>{}, AT(fp8.algorithm))),
      added(key("fp8.margin",
                {"recipe delayed: the exponent is lower by this, as room for growth", "bits"},
                Int{0, 8}, AT(fp8.margin))),
      unless(key("fp8.save_original_input",
                 {"layers that save their input in bf16, to be quantised again for the weight's "
                  "gradient, in place of its codes; computed: those whose input is recomputed"},
                 Set<Fp8Layer>{}, AT(fp8.save_original_input)),
             [](const Scenario& s) {
               return s.fp8.save_original_input == implied_original_inputs(s.model);
             }),
      unless(key("fp8.weight_cache",
                 {"weights are quantised once a step, not in each pass; computed: false under "
                  "optim_grads_params without fp8.param_gather"},
                 Bool{}, AT(fp8.weight_cache)),
             [](const Scenario& s) { return s.fp8.weight_cache == default_weight_cache(s); }),
      added(key("fp8.param_gather", {"ranks exchange codes of weights, not bf16 weights"}, Bool{},
                AT(fp8.param_gather)))};
  // Read by fp8 numerics alone.
  for (Key& key : made) {
    key.counts = [](const Scenario& s) {
      return std::find(s.numerics.begin(), s.numerics.end(), Numerics::fp8) != s.numerics.end();
    };
    keys.push_back(std::move(key));
  }
}

#undef AT

}  // namespace

const std::vector<Key>& schema() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> list;
    add_head(list);
    add_model(list);
    add_data(list);
    add_training(list);
    add_machinery(list);
    add_parallel(list);
    add_judging(list);
    add_fp8(list);
    return list;
  }();
  return keys;
}

}  // namespace lockstep
