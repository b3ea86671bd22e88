// The layers, and what they compute.
#include <algorithm>

#include "harness/megatron/carrier.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestPattern = 128;
constexpr std::int64_t kMost = 1 << 20;  // So that products do not overflow; far above any range.

// A pattern's blocks: `*` with the `-` or `E` after it, and every other symbol by itself.
std::vector<std::string> blocks_of(const std::string& pattern) {
  std::vector<std::string> blocks;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool two = pattern[i] == '*' && i + 1 < pattern.size() &&
                     (pattern[i + 1] == '-' || pattern[i + 1] == 'E');
    blocks.push_back(pattern.substr(i, two ? 2 : 1));
    i += two;
  }
  return blocks;
}

// The first blocks, until every kind was there and at least two blocks; kinds alone where that is
// long.
std::string shortened(const std::string& pattern) {
  const std::vector<std::string> blocks = blocks_of(pattern);
  std::vector<std::string> kinds = blocks, first;
  std::sort(kinds.begin(), kinds.end());
  const auto count = std::unique(kinds.begin(), kinds.end()) - kinds.begin();
  std::string whole, distinct;
  for (const std::string& block : blocks) {
    whole += block;
    if (std::find(first.begin(), first.end(), block) == first.end()) {
      first.push_back(block);
      distinct += block;
    }
    if (std::ssize(first) == count && whole.size() > block.size()) break;
  }
  return whole.size() <= 8 ? whole : distinct;
}

// The most blocks of one kind, which are units of equal size.
std::int64_t most_alike(const std::vector<std::string>& blocks) {
  std::int64_t most = 0;
  for (const std::string& block : blocks)
    most = std::max<std::int64_t>(most, std::count(blocks.begin(), blocks.end(), block));
  return most;
}

}  // namespace

// Two units in two slots never take each other's: a third one does.
void Carrier::units_that_share() {
  if (small() && shares_slots_ && (graphs_ || request_.flag("fsdp_double_buffer"))) {
    const std::vector<std::string> again = blocks_of(pattern_);
    for (std::size_t i = 0; most_alike(blocks_of(pattern_)) < 3; ++i)
      pattern_ += again[i % again.size()];
    set("model.pattern", "\"" + pattern_ + "\"");
  }
  const std::string asked = asked_pattern_.size() > 16
                                ? std::to_string(asked_pattern_.size()) + " symbols"
                                : asked_pattern_;
  if (pattern_ != asked_pattern_) made_small("model.pattern", asked, pattern_);
}

void Carrier::pattern() {
  std::string field = "hybrid_layer_pattern";
  if (!request_.text(field)) field = "hybrid_override_pattern";
  const std::optional<std::string> given = request_.text(field);
  std::string pattern;
  for (const char* name : {"hybrid_layer_pattern", "hybrid_override_pattern", "num_layers",
                           "moe_layer_freq", "is_hybrid_model", "encoder_num_layers"})
    use(name);
  if (given) {
    bool has_heads = false, foreign = false;
    for (const char symbol : *given) {
      if (symbol == '/') has_heads = true;
      if (has_heads || symbol == '|') continue;
      const char nearest = symbol == 'G' ? 'M' : symbol == 'D' || symbol == '+' ? '*' : symbol;
      foreign = foreign || nearest != symbol;
      if (std::string("M*-E").find(nearest) == std::string::npos)
        request_.fail(field, "has the symbol " + shown(std::string(1, symbol)) +
                                 ", and layers are M * - E G D +");
      pattern += nearest;
    }
    if (foreign) leave(WithoutKey::arithmetic, field, "G is M here, D and + are *");
    if (has_heads)
      leave(WithoutKey::arithmetic, field, "what predicts further tokens (after /) is left out");
  } else {
    const std::int64_t layers = std::min<std::int64_t>(required("num_layers"), 1 << 16);
    field = "num_layers";
    const std::vector<std::string> frequency = request_.list("moe_layer_freq");
    std::int64_t every = 1;
    if (frequency.size() <= 1)
      every = std::max<std::int64_t>(1, request_.integer("moe_layer_freq").value_or(1));
    const bool experts = request_.integer("num_experts").value_or(0) > 0;
    for (std::int64_t i = 0; i < layers; ++i) {
      const bool is_expert =
          frequency.size() > 1 ? frequency[i % frequency.size()] == "1" : i % every == 0;
      pattern += experts && is_expert ? "*E" : "*-";
    }
  }
  if (pattern.empty()) request_.fail(field, "has no layer");
  const std::string asked = std::to_string(pattern.size()) + " symbols";
  asked_pattern_ = pattern;
  pattern_ = small() ? shortened(pattern) : pattern.substr(0, kLongestPattern);
  if (!small() && pattern.size() > kLongestPattern)
    change("model.pattern", asked, "the first 128", "a pattern has at most 128 symbols");
  set("model.pattern", "\"" + pattern_ + "\"", field);
  set_sized("model.hidden", required("hidden_size"), 32, "hidden_size");
}

void Carrier::attention() {
  for (const char* name :
       {"group_query_attention", "num_query_groups", "kv_channels", "num_attention_heads"})
    use(name);
  const bool untied = request_.flag("untie_embeddings_and_output_weights");
  set("model.tied_embedding", untied ? "false" : "true", "untie_embeddings_and_output_weights");
  for (const char* name : {"padded_vocab_size", "vocab_size", "make_vocab_size_divisible_by"})
    use(name);
  std::optional<std::int64_t> vocab = request_.integer("padded_vocab_size");
  if (!vocab) vocab = request_.integer("vocab_size");
  if (!vocab && !small())
    change("model.vocab", "the tokenizer's", "50304", "the tokenizer is not read");
  const std::int64_t tokens = sized(vocab.value_or(50304), 64);
  set("model.vocab", tokens, vocab ? "vocab_size" : "");
  if (vocab) made_small("model.vocab", std::to_string(*vocab), std::to_string(tokens));
  if (!has_symbol('*')) return;
  const std::int64_t heads = required("num_attention_heads");
  const bool grouped = request_.flag("group_query_attention");
  const std::int64_t groups =
      std::max<std::int64_t>(1, grouped ? request_.integer("num_query_groups").value_or(1) : heads);
  const std::int64_t each = std::max<std::int64_t>(1, heads / groups);
  const std::int64_t kv_heads =
      set_sized("model.attention.kv_heads", groups, 2, "num_query_groups");
  set_sized("model.attention.heads", heads, kv_heads * std::min<std::int64_t>(each, 4),
            "num_attention_heads");
  const std::int64_t width = required("hidden_size") / heads;
  set_sized("model.attention.head_dim",
            request_.integer("kv_channels").value_or(std::max<std::int64_t>(1, width)), 16,
            "kv_channels");
}

void Carrier::mamba() {
  for (const char* name :
       {"mamba_state_dim", "mamba_head_dim", "mamba_num_groups", "mamba_num_heads"})
    use(name);
  if (!has_symbol('M')) return;
  const std::int64_t head =
      std::clamp<std::int64_t>(request_.integer("mamba_head_dim").value_or(64), 1, kMost);
  const std::optional<std::int64_t> heads = request_.integer("mamba_num_heads");
  const std::int64_t inner = heads ? std::min(*heads, kMost) * head : 2 * required("hidden_size");
  set_sized("model.mamba.d_inner", inner, 64, "mamba_num_heads");
  set_sized("model.mamba.head_dim", head, 16, "mamba_head_dim");
  set_sized("model.mamba.groups", request_.integer("mamba_num_groups").value_or(8), 2,
            "mamba_num_groups");
  set_sized("model.mamba.state", request_.integer("mamba_state_dim").value_or(128), 16,
            "mamba_state_dim");
}

void Carrier::mlp() {
  for (const char* name : {"ffn_hidden_size", "swiglu", "squared_relu"}) use(name);
  if (!has_symbol('-') && !has_symbol('E')) return;
  const bool gated = request_.flag("swiglu"), squared = request_.flag("squared_relu");
  set("model.mlp.activation", gated ? "swiglu" : "squared_relu",
      gated     ? "swiglu"
      : squared ? "squared_relu"
                : "");
  if (!gated && !squared) {
    result_.arithmetic.push_back({"activation", "GELU", "here it is squared_relu, or swiglu"});
    for (const char* name : {"openai_gelu", "quick_geglu"}) use(name);
  }
  const std::int64_t hidden = required("hidden_size");
  const std::int64_t by_default =
      gated ? std::max<std::int64_t>(64, 8 * hidden / 3 / 64 * 64) : 4 * hidden;
  if (has_symbol('-'))
    set_sized("model.mlp.hidden", request_.integer("ffn_hidden_size").value_or(by_default), 64,
              "ffn_hidden_size");
}

void Carrier::experts() {
  for (const char* name :
       {"num_experts", "moe_router_topk", "moe_ffn_hidden_size",
        "moe_shared_expert_intermediate_size", "moe_router_score_function",
        "moe_expert_capacity_factor", "moe_router_load_balancing_type", "moe_aux_loss_coeff"})
    use(name);
  if (!has_symbol('E')) return;
  const std::int64_t top_k = set_sized(
      "model.moe.top_k", request_.integer("moe_router_topk").value_or(2), 4, "moe_router_topk");
  const std::int64_t experts = required("num_experts"),
                     kept = std::max(sized(experts, 8), small() ? top_k : 1);
  set("model.moe.experts", kept, "num_experts");
  made_small("model.moe.experts", std::to_string(experts), std::to_string(kept));
  const std::int64_t inner =
      request_.integer("ffn_hidden_size").value_or(4 * required("hidden_size"));
  set_sized("model.moe.hidden", request_.integer("moe_ffn_hidden_size").value_or(inner), 32,
            "moe_ffn_hidden_size");
  set_sized("model.moe.shared_hidden",
            request_.integer("moe_shared_expert_intermediate_size").value_or(0), 32,
            "moe_shared_expert_intermediate_size");
  const std::string score = request_.text("moe_router_score_function").value_or("softmax");
  if (score == "sigmoid" || score == "softmax") {
    set("model.moe.router", score, "moe_router_score_function");
  } else {
    leave(WithoutKey::arithmetic, "moe_router_score_function", "here it is softmax or sigmoid");
  }
  const std::optional<double> factor = request_.number("moe_expert_capacity_factor");
  set("model.moe.capacity_factor", factor ? yaml_ratio(*factor) : "none",
      "moe_expert_capacity_factor");
  const std::vector<std::string> balancing = request_.list("moe_router_load_balancing_type");
  const bool by_loss = balancing.empty() || balancing == std::vector<std::string>{"aux_loss"};
  if (by_loss) {
    set("model.moe.aux_loss", yaml_ratio(request_.number("moe_aux_loss_coeff").value_or(0)),
        "moe_aux_loss_coeff");
  } else if (balancing != std::vector<std::string>{"none"}) {
    leave(WithoutKey::arithmetic, "moe_router_load_balancing_type",
          "here the loss is of a microbatch: aux_loss");
  }
}

void Carrier::recompute() {
  for (const char* name : {"recompute_granularity", "recompute_modules", "recompute_activations",
                           "recompute_method", "recompute_num_layers", "moe_layer_recompute"})
    use(name);
  const std::string how = request_.flag("recompute_activations")
                              ? "selective"
                              : request_.text("recompute_granularity").value_or("");
  if (how.empty()) return;
  const std::pair<const char*, char> kinds[] = {
      {"layernorm", '\0'}, {"mlp_act", '-'}, {"moe_act", 'E'}, {"core_attn", '*'},
      {"mlp", '-'},        {"mamba", 'M'},   {"moe", 'E'}};
  std::vector<std::string> asked = request_.list("recompute_modules");
  if (asked.empty()) asked = {"core_attn"};
  if (how == "full") {
    asked = {"layernorm", "core_attn", "mlp", "mamba", "moe"};
    leave(WithoutKey::machinery, "recompute_granularity",
          "whole layers have no key: their parts are computed again");
  }
  std::vector<std::string> modules;
  for (const std::string& word : asked) {
    const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                   [&](const auto& one) { return word == one.first; });
    if (kind == std::end(kinds)) {
      result_.machinery.push_back({"recompute_modules", shown(word), "no such module here"});
    } else if (kind->second == '\0' || has_symbol(kind->second)) {
      modules.push_back(word);
    }
  }
  if (!modules.empty()) set("model.recompute", yaml_list(modules), "recompute_modules");
}

}  // namespace lockstep
