#include "harness/foreign/hello.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

const std::set<std::string> kKinds{"token_loss",   "loss",   "activation", "activation_gradient",
                                   "gradient",     "weight", "moment1",    "moment2",
                                   "gradient_norm"};

const std::set<std::string> kStreams{"compute", "d2h",   "h2d",   "gather",
                                     "reduce",  "graph", "loader"};

[[noreturn]] void refuse(const std::string& field, const char* what) {
  throw std::invalid_argument("hello: `" + field + "` " + what);
}

const json::value* find(const json::object& reply, const char* field) {
  return reply.if_contains(field);
}

json::object object_at(const json::object& reply, const char* field, bool required) {
  const json::value* const value = find(reply, field);
  if (value == nullptr && !required) return {};
  if (value == nullptr) refuse(field, "is missing");
  if (!value->is_object()) refuse(field, "is no object");
  return value->as_object();
}

std::map<std::string, std::string> texts_at(const json::object& reply, const char* field,
                                            bool required) {
  std::map<std::string, std::string> texts;
  for (const json::key_value_pair& item : object_at(reply, field, required)) {
    if (!item.value().is_string()) refuse(field, "holds more than texts");
    texts[item.key()] = item.value().as_string();
  }
  return texts;
}

std::vector<std::string> list_at(const json::object& reply, const char* field, bool required) {
  const json::value* const value = find(reply, field);
  if (value == nullptr && !required) return {};
  if (value == nullptr) refuse(field, "is missing");
  if (!value->is_array()) refuse(field, "is no list");
  std::vector<std::string> list;
  for (const json::value& item : value->as_array()) {
    if (!item.is_string()) refuse(field, "holds more than texts");
    std::string text(item.as_string());
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
  }
  return list;
}

bool flag_at(const json::object& claims, const char* claim) {
  const json::value* const value = find(claims, claim);
  if (value != nullptr && !value->is_bool()) refuse(claim, "is neither true nor false");
  return value != nullptr && value->as_bool();
}

std::set<std::string> set_of(const std::vector<std::string>& list) {
  return {list.begin(), list.end()};
}

// The streams that the engine holds back where it says nothing of them: all.
std::set<std::string> delays_of(const json::object& reply) {
  if (find(reply, "delays") == nullptr) return kStreams;
  const std::vector<std::string> list = list_at(reply, "delays", true);
  for (const std::string& stream : list) {
    if (!kStreams.contains(stream))
      refuse("delays", "names a stream that the protocol does not have");
  }
  return set_of(list);
}

bool is_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 64 && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || c == '_' || c == '-'; });
}

}  // namespace

bool Hello::observes_kind(const std::string& kind) const {
  return std::find(observes.begin(), observes.end(), kind) != observes.end();
}

bool Hello::has_word(const char* word) const {
  const json::value* const value = find(honours, word);
  return value != nullptr && value->is_bool() && value->as_bool();
}

std::string Hello::engine_text() const {
  std::string text = engine.at("name") + " " + engine.at("version"), rest;
  for (const auto& [name, value] : engine) {
    if (name == "name" || name == "version") continue;
    rest += (rest.empty() ? "" : ", ") + name + " " + value;
  }
  return rest.empty() ? text : text + " (" + rest + ")";
}

Hello hello_from_json(const json::object& reply) {
  Hello hello;
  hello.engine = texts_at(reply, "engine", true);
  if (!hello.engine.contains("version") || !is_name(hello.engine["name"]))
    refuse("engine", "needs a name of [a-z0-9_-] and a version");
  hello.device = texts_at(reply, "device", false);
  hello.honours = object_at(reply, "honours", true);
  for (const char* key : {"numerics", "model.pattern"}) {
    if (find(hello.honours, key) == nullptr) refuse("honours", "needs numerics and model.pattern");
  }
  const json::object claims = object_at(reply, "claims", false);
  hello.deterministic = flag_at(claims, "deterministic");
  hello.weights_by_name = flag_at(claims, "weights_by_name");
  hello.recompute_exact = flag_at(claims, "recompute_exact");
  hello.padding_defined = flag_at(claims, "padding_defined");
  hello.padding_zero = flag_at(claims, "padding_zero");
  hello.loss_scaled = flag_at(claims, "loss_scaled");
  hello.dropout_by_key = flag_at(claims, "dropout_by_key");
  hello.row_invariant = set_of(list_at(claims, "row_invariant", false));
  hello.counters_exact = set_of(list_at(claims, "counters_exact", false));
  hello.observes = list_at(reply, "observes", true);
  for (const std::string& kind : hello.observes) {
    if (!kKinds.contains(kind)) refuse("observes", "names a kind that the protocol does not have");
  }
  if (!hello.observes_kind("token_loss") && !hello.observes_kind("gradient") &&
      !hello.observes_kind("weight"))
    refuse("observes", "needs one of token_loss, gradient, weight");
  hello.counts = texts_at(reply, "counts", false);
  for (const auto& [name, how] : hello.counts) {
    if (how != "seen" && how != "said") refuse("counts", "takes the words seen and said");
  }
  hello.amplifies = set_of(list_at(reply, "amplifies", false));
  if (hello.amplifies.contains("delay")) hello.delays = delays_of(reply);
  hello.unstable = list_at(reply, "unstable", false);
  if (const json::value* const path = find(reply, "expectations")) {
    if (!path->is_string()) refuse("expectations", "is no text");
    hello.expectations = path->as_string();
  }
  return hello;
}

bool matches(const std::string& pattern, const std::string& text) {
  // Greedy with one place to go back to: the last *.
  std::size_t p = 0, t = 0, star = std::string::npos, after = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

}  // namespace lockstep::foreign
