#include "scenarios/schema/schema.h"

#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// Documents are numbered and measured in 32 bits.
constexpr std::int64_t kMostLength = 2147483647;
// No more than keeps factor * top_k * pack_length in 64 bits.
constexpr std::int64_t kMostFactor = 100'000'000'000;

constexpr std::int64_t whole(std::int64_t value) { return value * 1'000'000; }

template <class Type, class Get, class Set>
Key key(std::string path, Type type, Get get, Set set) {
  Key made;
  made.path = path;
  made.type = type.name();
  made.write = [=](const Scenario& scenario, Style style) { return type.write(get(scenario), style); };
  made.read = [=](const Item& item, Scenario& scenario) {
    if (auto value = type.read(item)) set(scenario, std::move(*value));
  };
  return made;
}

template <class Type, class Member>
Key key(std::string path, Type type, Member member) {
  return key(std::move(path), type, member, [=](Scenario& s, typename Type::Value v) { member(s) = std::move(v); });
}

template <class... Kind>
Key only_for(Key key, Kind... kind) {
  key.counts = [=](const Scenario& s) { return ((s.data.kind == kind) || ...); };
  return key;
}

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 64 && is_lower_or_digit(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_lower_or_digit(c) || c == '_' || c == '-'; });
}

std::string name_near(const std::string& text) {
  std::string name;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == ' ' || c == '.' || c == '/') c = '-';
    if (is_lower_or_digit(c) || (!name.empty() && (c == '_' || c == '-'))) name += c;
  }
  return name.empty() ? "a-name" : name.substr(0, 64);
}

bool is_pattern(const std::string& text) {
  return !text.empty() && text.size() <= 128 && text.find_first_not_of("M*-E") == std::string::npos;
}

std::string pattern_near(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    const char upper = c == 'm' ? 'M' : c == 'e' ? 'E' : c;
    if (std::string("M*-E").find(upper) != std::string::npos) pattern += upper;
  }
  return "\"" + (pattern.empty() ? "M*-" : pattern.substr(0, 128)) + "\"";
}

bool is_digest(const std::string& text) {
  return text.empty() || (text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos);
}

bool is_judge(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
}

const auto kNoNearest = [](const std::string&) { return std::string(); };

const Text kName{"[a-z0-9][a-z0-9_-]{0,63}", is_name, name_near};
const Text kDescription{"up to 500 characters", [](const std::string& t) { return characters(t) <= 500; },
                        [](const std::string&) { return std::string("its first 500 characters"); }};
const Text kPattern{"1 to 128 symbols of M * - E", is_pattern, pattern_near};
const Text kPath{"the path of a file or folder", [](const std::string& t) { return !t.empty(); }, kNoNearest};
const Text kDigest{"32 hex digits in lower case, or \"\"", is_digest,
                   [](const std::string&) { return std::string("\"\""); }};
const Text kRole{"the name of a role", [](const std::string& t) { return !t.empty(); },
                 [](const std::string&) { return std::string("assistant"); }};
const Text kJudge{"a judge such as hazard or vacuous, or none", is_judge,
                  [](const std::string&) { return std::string("none"); }};

#define AT(member) \
  [](auto& s) -> auto& { return s.member; }

void add_head(std::vector<Key>& keys) {
  // `schema` has no member: it is 1 (Y07 sees to that).
  Key schema;
  schema.path = "schema";
  schema.type = Int{1, 1}.name();
  schema.read = [](const Item& item, Scenario&) {
    const auto version = Int{INT64_MIN, INT64_MAX}.read(item);
    if (!version || *version == 1) return;
    item.faults.add("Y07", item.node.place, item.key, "is " + std::to_string(*version), "only schema 1 is read", "1");
  };
  schema.write = [](const Scenario&, Style) { return std::string("1"); };
  keys.push_back(schema);
  keys.push_back(key("name", kName, AT(name)));
  keys.push_back(key("description", kDescription, AT(description)));
  keys.push_back(key("numerics", Set<Numerics>{1}, AT(numerics)));
}

void add_model(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {key("model.pattern", kPattern, AT(model.pattern)),
       key("model.hidden", Int{1, 16384}, AT(model.hidden)),
       key("model.vocab", Int{2, 262144}, AT(model.vocab)),
       key("model.tied_embedding", Bool{}, AT(model.tied_embedding)),
       key("model.norm_eps", Number{.above_min = true}, AT(model.norm_eps)),
       key("model.attention.heads", Int{1, 256}, AT(model.attention.heads)),
       key("model.attention.kv_heads", Int{1, 256}, AT(model.attention.kv_heads)),
       key("model.attention.head_dim", Int{2, 128, true}, AT(model.attention.head_dim)),
       key("model.attention.rope_base", Number{.min = 1, .above_min = true}, AT(model.attention.rope_base)),
       key("model.mamba.d_inner", Int{1, 32768}, AT(model.mamba.d_inner)),
       key("model.mamba.head_dim", Int{1, 128}, AT(model.mamba.head_dim)),
       key("model.mamba.groups", Int{1, 64}, AT(model.mamba.groups)),
       key("model.mamba.state", Int{1, 256}, AT(model.mamba.state)),
       key("model.mamba.conv_width", Int{1, 8}, AT(model.mamba.conv_width)),
       key("model.mamba.chunk", Int{1, 256}, AT(model.mamba.chunk)),
       key("model.mlp.hidden", Int{1, 65536}, AT(model.mlp.hidden)),
       key("model.mlp.activation", Word<MlpActivation>{}, AT(model.mlp.activation)),
       key("model.moe.experts", Int{2, 256}, AT(model.moe.experts)),
       key("model.moe.top_k", Int{1, 16}, AT(model.moe.top_k)),
       key("model.moe.hidden", Int{1, 65536}, AT(model.moe.hidden)),
       key("model.moe.shared_hidden", Int{0, 65536}, AT(model.moe.shared_hidden)),
       key("model.moe.router", Word<Router>{}, AT(model.moe.router)),
       key("model.moe.expert_bias", Bool{}, AT(model.moe.expert_bias)),
       key("model.moe.capacity_factor", OrWord<RatioType>{{1, kMostFactor}, "none"}, AT(model.moe.capacity_factor)),
       key("model.moe.pad_to_capacity", Bool{}, AT(model.moe.pad_to_capacity)),
       key("model.moe.host_sync", Bool{}, AT(model.moe.host_sync)),
       key("model.moe.aux_loss", RatioType{0, whole(1)}, AT(model.moe.aux_loss)),
       key("model.moe.z_loss", RatioType{0, whole(1)}, AT(model.moe.z_loss)),
       key("model.dropout", RatioType{0, 900'000}, AT(model.dropout)),
       key("model.recompute", Set<Recompute>{}, AT(model.recompute)),
       key("model.core_attention", Word<CoreAttention>{}, AT(model.core_attention))});
}

void add_data(std::vector<Key>& keys) {
  const List<List<List<Int>>> documents{{{Int{0, kMostLength}}, 1}, 1};
  const auto drawn = [](Key key) { return only_for(std::move(key), DataKind::distribution); };
  const auto stored = [](Key key) { return only_for(std::move(key), DataKind::text, DataKind::jsonl); };
  keys.insert(keys.end(), {key("data.kind", Word<DataKind>{}, AT(data.kind)),
                           key("data.pack_length", Int{1, 1048576}, AT(data.pack_length)),
                           only_for(key("data.documents", documents, AT(data.documents)), DataKind::lengths),
                           drawn(key("data.distribution.shape", Word<Shape>{}, AT(data.distribution.shape))),
                           drawn(key("data.distribution.min", Int{0, 1048576}, AT(data.distribution.min))),
                           drawn(key("data.distribution.max", Int{0, 1048576}, AT(data.distribution.max))),
                           drawn(key("data.distribution.median", Int{1, 1048576}, AT(data.distribution.median))),
                           drawn(key("data.distribution.sigma", RatioType{0, whole(4)}, AT(data.distribution.sigma))),
                           drawn(key("data.distribution.empty", RatioType{0, whole(1)}, AT(data.distribution.empty))),
                           drawn(key("data.distribution.fill", RatioType{0, whole(1)}, AT(data.distribution.fill))),
                           drawn(key("data.distribution.seed", Int{0, kMostSeed}, AT(data.distribution.seed))),
                           stored(key("data.path", kPath, AT(data.path))),
                           stored(key("data.digest", kDigest, AT(data.digest))),
                           key("data.long_documents", Word<LongDocuments>{}, AT(data.long_documents)),
                           key("data.mask.document_end", Bool{}, AT(data.mask.document_end)),
                           key("data.mask.prefix", Int{0, 1048576}, AT(data.mask.prefix)),
                           key("data.mask.rate", RatioType{0, whole(1)}, AT(data.mask.rate)),
                           key("data.mask.microbatches", List<Int>{kAnyInt}, AT(data.mask.microbatches)),
                           only_for(key("data.mask.roles", List<Text>{kRole}, AT(data.mask.roles)), DataKind::jsonl),
                           key("data.tail", Word<Tail>{}, AT(data.tail)),
                           key("data.align", Int{1, 256}, AT(data.align)),
                           key("data.gaps", Int{0, 256}, AT(data.gaps))});
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
  keys.insert(keys.end(), {key("training.steps", Int{1, 1000000}, AT(training.steps)),
                           key("training.microbatches", Int{1, 1024}, AT(training.microbatches)),
                           key("training.in_flight", Int{1, 16}, AT(training.in_flight)),
                           key("training.optimizer.lr", Number{}, AT(training.optimizer.lr)),
                           key("training.optimizer.min_lr", Number{}, AT(training.optimizer.min_lr)),
                           key("training.optimizer.schedule", Word<LrSchedule>{}, AT(training.optimizer.schedule)),
                           key("training.optimizer.lr_warmup", Int{0, 1000000}, AT(training.optimizer.lr_warmup)),
                           key("training.optimizer.decay_steps", Int{1, 1000000}, AT(training.optimizer.decay_steps)),
                           key("training.optimizer.weight_decay", Number{}, AT(training.optimizer.weight_decay)),
                           key("training.optimizer.betas", two_betas, betas, set_betas),
                           key("training.optimizer.eps", Number{.above_min = true}, AT(training.optimizer.eps)),
                           key("training.optimizer.clip", Number{}, AT(training.optimizer.clip)),
                           key("training.seed", Int{0, kMostSeed}, AT(training.seed)),
                           key("training.eval_every", Int{0, 1000000}, AT(training.eval_every)),
                           key("training.recapture_at", List<Int>{kAnyInt}, AT(training.recapture_at)),
                           key("training.change_microbatches_at", List<MicrobatchChangeType>{},
                               AT(training.change_microbatches_at))});
}

void add_machinery(std::vector<Key>& keys) {
  const auto unit = [](const Scenario& s) { return Unit::Value{s.fsdp.unit, s.fsdp.unit_is_list}; };
  const auto set_unit = [](Scenario& s, const Unit::Value& value) {
    s.fsdp.unit = value.blocks;
    s.fsdp.unit_is_list = value.is_list;
  };
  keys.insert(keys.end(), {key("cuda_graph.impl", Word<GraphImpl>{}, AT(cuda_graph.impl)),
                           key("cuda_graph.modules", Set<GraphModule>{}, AT(cuda_graph.modules)),
                           key("cuda_graph.warmup_steps", Int{0, 100}, AT(cuda_graph.warmup_steps)),
                           key("cuda_graph.max_packed_seqs", Buckets{}, AT(cuda_graph.max_packed_seqs)),
                           key("cuda_graph.graph_memory_limit", Int{}, AT(cuda_graph.graph_memory_limit)),
                           key("offload.modules", Set<OffloadModule>{}, AT(offload.modules)),
                           key("offload.fraction", RatioType{0, whole(1)}, AT(offload.fraction)),
                           key("offload.min_bytes", Int{}, AT(offload.min_bytes)),
                           key("offload.max_inflight", OrWord<Int>{{0, 1024}, "unlimited"}, AT(offload.max_inflight)),
                           key("offload.delay_until_cuda_graph", Bool{}, AT(offload.delay_until_cuda_graph)),
                           key("offload.pool_slack", Int{0, 64}, AT(offload.pool_slack)),
                           key("fsdp.strategy", Word<Sharding>{}, AT(fsdp.strategy)),
                           key("fsdp.double_buffer", Bool{}, AT(fsdp.double_buffer)),
                           key("fsdp.persist_buf_on_alloc_fail", Bool{}, AT(fsdp.persist_buf_on_alloc_fail)),
                           key("fsdp.unit", Unit{}, unit, set_unit),
                           key("fsdp.prefetch", Int{0, 2}, AT(fsdp.prefetch)),
                           key("fsdp.reduction", Word<Reduction>{}, AT(fsdp.reduction)),
                           key("fsdp.bucket_bytes", Int{}, AT(fsdp.bucket_bytes)),
                           key("fsdp.nccl_ub", Bool{}, AT(fsdp.nccl_ub)),
                           key("parallel.data", Int{1, 64}, AT(parallel.data)),
                           key("parallel.context", Int{1, 64}, AT(parallel.context)),
                           key("parallel.tensor", Int{1, 64}, AT(parallel.tensor)),
                           key("parallel.expert", Int{1, 64}, AT(parallel.expert)),
                           key("parallel.pipeline", Int{1, 64}, AT(parallel.pipeline)),
                           key("parallel.transport", Word<Transport>{}, AT(parallel.transport))});
}

void add_judging(std::vector<Key>& keys) {
  keys.insert(
      keys.end(),
      {key("checker.hazards", Bool{}, AT(checker.hazards)), key("checker.poison", Set<Poison>{}, AT(checker.poison)),
       key("checker.delays", List<DelayType>{}, AT(checker.delays)),
       key("checker.schedule.kind", Word<ScheduleKind>{}, AT(checker.schedule.kind)),
       key("checker.schedule.depth", Int{1, 8}, AT(checker.schedule.depth)),
       key("checker.schedule.seed", Int{0, kMostSeed}, AT(checker.schedule.seed)),
       key("checker.schedule.count", Int{1, 1000000}, AT(checker.schedule.count)),
       key("expect.verdict", Word<ExpectedVerdict>{}, AT(expect.verdict)),
       key("expect.error", Name{rule_names()}, AT(expect.error)), key("expect.judge", kJudge, AT(expect.judge)),
       key("expect.counters", Counters{}, AT(expect.counters))});
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
    add_judging(list);
    return list;
  }();
  return keys;
}

}  // namespace lockstep
