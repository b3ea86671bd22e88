#include "scenarios/schema/types.h"

#include <cmath>

#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// A node as messages quote it.
std::string shown(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing (null)";
    case Node::Kind::sequence:
      return "a list";
    case Node::Kind::mapping:
      return "a mapping";
    case Node::Kind::refused:
      return "an alias";
    case Node::Kind::scalar:
      break;
  }
  if (!node.single_line) return "a text of several lines";
  return (node.quoted ? "the quoted text " : "") + quoted(node.text);
}

std::string join(const std::vector<std::string>& items, const char* separator) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

bool has_control(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  });
}

}  // namespace

void Item::wrong_type(const std::string& wanted, const std::string& nearest) const {
  if (node.kind == Node::Kind::refused) return;  // Y02 has it already.
  faults.add("Y05", node.place, key, "is " + shown(node), "it takes " + wanted, nearest);
}

void Item::out_of_range(const std::string& wanted, const std::string& nearest) const {
  faults.add("Y06", node.place, key, shown(node) + " is out of range", "it takes " + wanted,
             nearest);
}

std::string Int::name() const {
  const std::string parity = even ? "even int" : "int";
  if (min <= -kMostInt) return parity;
  if (max == kMostInt) return parity + " of at least " + std::to_string(min);
  return parity + " " + std::to_string(min) + ".." + std::to_string(max);
}

std::optional<std::int64_t> Int::read(const Item& item) const {
  const auto legal = [&](std::int64_t value) {
    value = std::clamp(value, min, max);
    return std::to_string(value - (even && value % 2 != 0));
  };
  const std::optional<std::int64_t> value =
      item.is_plain() ? parse_int(item.node.text) : std::nullopt;
  if (!value) {
    const std::optional<std::int64_t> guess =
        item.is(Node::Kind::scalar) ? guess_int(item.node.text) : std::nullopt;
    return item.wrong_type(name(), guess ? legal(*guess) : ""), std::nullopt;
  }
  if (*value < min || *value > max || (even && *value % 2 != 0)) {
    return item.out_of_range(name(), legal(*value)), std::nullopt;
  }
  return value;
}

std::string Number::name() const {
  return "number " + write_number(min) + (above_min ? " < " : " <= ") + "x" +
         (below_max ? " < " : " <= ") + write_number(max);
}

std::optional<double> Number::read(const Item& item) const {
  const std::optional<double> value = item.is_plain() ? parse_number(item.node.text) : std::nullopt;
  if (!value) {
    const std::optional<double> guess = item.is(Node::Kind::scalar) && item.node.quoted
                                            ? parse_number(item.node.text)
                                            : std::nullopt;
    return item.wrong_type(name(), guess ? write_number(*guess) : ""), std::nullopt;
  }
  const bool legal =
      (above_min ? *value > min : *value >= min) && (below_max ? *value < max : *value <= max);
  if (!legal) {
    const bool low = *value <= min;
    const bool bound_is_legal = low ? !above_min : !below_max;
    return item.out_of_range(name(), bound_is_legal ? write_number(low ? min : max) : ""),
           std::nullopt;
  }
  return value;
}

std::string RatioType::name() const {
  const std::string low = min_millionths == 0 ? "0.." : "above 0, up to ";
  return "ratio " + low + write_ratio({max_millionths}) + " of at most 6 digits after the point";
}

std::optional<Ratio> RatioType::read(const Item& item) const {
  const std::optional<Ratio> value = item.is_plain() ? parse_ratio(item.node.text) : std::nullopt;
  const auto legal = [&](double ratio) {
    const double millionths =
        std::clamp(ratio * 1e6, double(min_millionths), double(max_millionths));
    return write_ratio({std::llround(millionths)});
  };
  if (!value) {
    const std::string& text = item.node.text;
    const bool percent = item.is(Node::Kind::scalar) && text.ends_with("%");
    const std::optional<double> guess = percent ? parse_number(text.substr(0, text.size() - 1))
                                        : item.is(Node::Kind::scalar) ? parse_number(text)
                                                                      : std::nullopt;
    return item.wrong_type(name(), guess ? legal(*guess / (percent ? 100 : 1)) : ""), std::nullopt;
  }
  if (value->millionths < min_millionths || value->millionths > max_millionths) {
    return item.out_of_range(name(), legal(value->value())), std::nullopt;
  }
  return value;
}

std::optional<bool> Bool::read(const Item& item) const {
  const std::string& text = item.node.text;
  if (item.is_plain() && (text == "true" || text == "false")) return text == "true";
  static const std::vector<std::string> yes{"yes", "Yes",  "YES",  "on",   "On", "ON",
                                            "y",   "True", "TRUE", "true", "1"};
  static const std::vector<std::string> no{"no", "No",    "NO",    "off",   "Off", "OFF",
                                           "n",  "False", "FALSE", "false", "0"};
  const auto is_in = [&](const std::vector<std::string>& list) {
    return item.is(Node::Kind::scalar) && std::find(list.begin(), list.end(), text) != list.end();
  };
  item.wrong_type(name(), is_in(yes) ? "true" : is_in(no) ? "false" : "");
  return std::nullopt;
}

std::optional<std::string> read_scalar_text(const Item& item, const std::string& wanted) {
  if (!item.is(Node::Kind::scalar) || !item.node.single_line || has_control(item.node.text) ||
      (item.node.text.empty() && !item.node.quoted)) {
    return item.wrong_type(wanted + ", on a single line"), std::nullopt;
  }
  return item.node.text;
}

std::optional<std::string> Text::read(const Item& item) const {
  const std::optional<std::string> text = read_scalar_text(item, name());
  if (!text || legal(*text)) return text;
  return item.out_of_range(name(), nearest(*text)), std::nullopt;
}

std::string word_from_elsewhere(const std::string& word, const std::vector<std::string>& names) {
  static const std::map<std::string, std::string> table{
      {"local", "partial"},
      {"transformer_engine", "partial"},
      {"te", "partial"},
      {"full", "full_iteration"},
      {"zero1", "optim"},
      {"zero2", "optim_grads"},
      {"zero3", "optim_grads_params"},
      {"bfloat16", "bf16"},
      {"float32", "fp32"},
      {"float", "fp32"},
      {"gpu", "cuda"},
      {"cpu", "sim"},
      {"flash", "native"},
      {"unfused", "native"},
      {"fused", "cudnn"},
      {"selective", "core_attn"},
      {"qkv", "qkv_linear"},
      {"fc1", "mlp_fc1"},
      {"mlp", "mlp_fc1"},
  };
  std::string plain;
  for (const char c : in_lower_case(word)) {
    if (c != '-' && c != '_') plain += c;
  }
  for (const auto& [other, ours] : table) {
    std::string key;
    for (const char c : other) {
      if (c != '_') key += c;
    }
    if (key == plain && std::find(names.begin(), names.end(), ours) != names.end()) return ours;
  }
  return "";
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& names) {
  const std::string alias = word_from_elsewhere(word, names);
  return alias.empty() ? nearest_name(word, names) : alias;
}

std::string list_of_words(const std::string& text, const std::vector<std::string>& names) {
  std::string list, word;
  for (const char c : text + " ") {
    if (c != ' ' && c != ',') {
      word += c;
      continue;
    }
    if (word.empty()) continue;
    const std::string near = nearest_word(word, names);
    if (near.empty()) return "";
    if (list.find(near) == std::string::npos) list += (list.empty() ? "" : ", ") + near;
    word.clear();
  }
  return list.empty() ? "" : "[" + list + "]";
}

std::string Name::name() const {
  if (names.size() > 24) return "one of " + names[0] + ", " + names[1] + " ... " + names.back();
  return join(names, " | ");
}

std::optional<std::string> Name::read(const Item& item) const {
  const std::optional<std::string> text = read_scalar_text(item, name());
  if (!text || std::find(names.begin(), names.end(), *text) != names.end()) return text;
  item.faults.add("Y06", item.node.place, item.key, quoted(*text) + " is not one of the words",
                  "it takes " + name(), nearest_word(*text, names));
  return std::nullopt;
}

}  // namespace lockstep
