// The types of schema 1. A type names itself in messages and in the reference, reads a node (rules
// Y05, Y06; Y03 inside records) and writes values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/schema/words.h"
#include "scenarios/syntax/nearest.h"
#include "scenarios/syntax/node.h"

namespace lockstep {

enum class Style { json, yaml };

// A node that is to be read, the name of its key, and the list that faults go to.
struct Item {
  const Node& node;
  std::string key;
  Faults& faults;

  Item at(std::size_t index) const {
    return {node.items[index], key + "[" + std::to_string(index) + "]", faults};
  }
  void wrong_type(const std::string& wanted, const std::string& nearest = "") const;    // Y05
  void out_of_range(const std::string& wanted, const std::string& nearest = "") const;  // Y06
  bool is(Node::Kind kind) const { return node.kind == kind; }
  bool is_plain() const { return is(Node::Kind::scalar) && !node.quoted && node.single_line; }
};

// Values as text. The items and fields of the last two are written already.
std::string write_text(const std::string& text, Style style);
std::string write_number(double value);
std::string write_ratio(Ratio value);
std::string write_list(const std::vector<std::string>& items, Style style);
std::string write_record(const std::vector<std::pair<std::string, std::string>>& fields,
                         Style style);

// A type as the reference and editors see it.
struct TypeText {
  std::string kind;   // "int", "set of words"
  std::string range;  // "1..64", or the words.
  std::string json;   // A JSON Schema of the values: an object in JSON.
};

// `parse_int` saturates at a larger magnitude.
inline constexpr std::int64_t kMostInt = INT64_MAX - 1;

struct Int {
  using Value = std::int64_t;
  std::int64_t min = 0, max = kMostInt;
  bool even = false;

  std::string name() const;
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(Value value, Style) const { return std::to_string(value); }
};

// A number of a step, a microbatch or a rank: whether there is one is a rule's business, not its
// range.
inline constexpr Int kAnyInt{-kMostInt, kMostInt};
inline constexpr Int kMicrobatches{1, 1024};
inline constexpr Int kRanks{1, 1024};
inline constexpr Int kBucket{1, 65536};
inline constexpr Int kUnitBlocks{1, 128};
inline constexpr Int kSpin{1, 100000};

// A decimal: above (or from) a bound, below (or up to) another, which a float can hold: with more a
// run would compute with infinity.
struct Number {
  using Value = double;
  double min = 0, max = std::numeric_limits<float>::max();
  bool above_min = false, below_max = false;

  std::string name() const;
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(Value value, Style) const { return write_number(value); }
};

struct RatioType {
  using Value = Ratio;
  std::int64_t min_millionths = 0, max_millionths = 0;

  std::string name() const;
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(Value value, Style) const { return write_ratio(value); }
};

struct Bool {
  using Value = bool;
  std::string name() const { return "bool: true or false"; }
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(Value value, Style) const { return value ? "true" : "false"; }
};

struct Text {
  using Value = std::string;
  std::string range;  // The texts that `legal` accepts, in words.
  std::string json;   // The same as members of a JSON Schema, such as "minLength": 1.
  bool (*legal)(const std::string&);
  // A legal text near one that is not; "" for the default.
  std::string (*nearest)(const std::string&);

  std::string name() const { return "text: " + range; }
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const { return write_text(value, style); }
};

// The text of a scalar that may be a word or a text; reports anything else.
std::optional<std::string> read_scalar_text(const Item& item, const std::string& wanted);

// Returns our word for one of Megatron-LM, Transformer Engine or DeepSpeed, if `names` contain it;
// otherwise "".
std::string word_from_elsewhere(const std::string& word, const std::vector<std::string>& names);
// The nearest of `names` to a word, those of other engines included; "" if none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& names);
// The list that somebody meant who wrote words without brackets: "[attn, mamba]" for "attn mamba".
// "" if a word of it is not near to any of `names`.
std::string list_of_words(const std::string& text, const std::vector<std::string>& names);

// One of some names.
struct Name {
  using Value = std::string;
  std::vector<std::string> names;

  std::string name() const;
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const { return write_text(value, style); }
};

template <class Enum>
struct Word {
  using Value = Enum;
  std::string name() const { return Name{words<Enum>()}.name(); }
  TypeText text() const { return Name{words<Enum>()}.text(); }
  std::optional<Value> read(const Item& item) const {
    const std::optional<std::string> text = Name{words<Enum>()}.read(item);
    return text ? std::optional(value_of<Enum>(*text)) : std::nullopt;
  }
  std::string write(Value value, Style style) const { return write_text(word(value), style); }
};

// A list of at least `min` and at most `max` items of one type.
TypeText list_text_of(const TypeText& item, std::size_t min, std::size_t max);

// A list; with `min` or `max` items it is out of range below or above.
template <class Type>
struct List {
  using Value = std::vector<typename Type::Value>;
  Type type;
  std::size_t min = 0, max = SIZE_MAX;

  std::string name() const {
    const std::string count = max != SIZE_MAX
                                  ? " of " + std::to_string(min) + ".." + std::to_string(max)
                              : min != 0 ? " of at least " + std::to_string(min)
                                         : " of";
    return "list" + count + " (" + type.name() + ")";
  }
  TypeText text() const { return list_text_of(type.text(), min, max); }
  std::optional<Value> read(const Item& item) const {
    if (!item.is(Node::Kind::sequence)) return item.wrong_type(name()), std::nullopt;
    Value values;
    for (std::size_t i = 0; i < item.node.items.size(); ++i) {
      if (auto value = type.read(item.at(i))) values.push_back(std::move(*value));
    }
    if (item.node.items.size() < min || item.node.items.size() > max)
      return item.out_of_range(name()), std::nullopt;
    if (values.size() != item.node.items.size()) return std::nullopt;
    return values;
  }
  std::string write(const Value& values, Style style) const {
    std::vector<std::string> items;
    for (const auto& value : values) items.push_back(type.write(value, style));
    return write_list(items, style);
  }
};

TypeText set_text_of(const std::vector<std::string>& words, std::size_t min);

// Words whose order does not matter: kept in the order of the enum, each at most once.
template <class Enum>
struct Set {
  using Value = std::vector<Enum>;
  std::size_t min = 0;

  std::string name() const {
    return (min != 0 ? "set, not empty, of " : "set of ") + Word<Enum>{}.name();
  }
  TypeText text() const { return set_text_of(words<Enum>(), min); }
  std::optional<Value> read(const Item& item) const {
    if (!item.is(Node::Kind::sequence)) {
      const bool text = item.is(Node::Kind::scalar);
      item.wrong_type(List<Word<Enum>>{{}, min}.name(),
                      text ? list_of_words(item.node.text, words<Enum>()) : "");
      return std::nullopt;
    }
    std::optional<Value> values = List<Word<Enum>>{{}, min}.read(item);
    if (!values) return std::nullopt;
    // The first word that is there again ends it: one proposal mends them all, and a list of many
    // repeats would take a proposal as long as itself for each.
    std::vector<bool> seen(words<Enum>().size());
    for (std::size_t i = 0; i < values->size(); ++i) {
      const auto place = static_cast<std::size_t>((*values)[i]);
      if (seen.at(place)) {
        item.at(i).out_of_range("each word at most once",
                                "[" + sorted_without_repeats(*values) + "]");
        return std::nullopt;
      }
      seen[place] = true;
    }
    std::sort(values->begin(), values->end());
    return values;
  }
  std::string write(Value values, Style style) const {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return List<Word<Enum>>{}.write(values, style);
  }

 private:
  static std::string sorted_without_repeats(const Value& given) {
    const std::string list = Set{}.write(given, Style::yaml);
    return list.substr(1, list.size() - 2);
  }
};

TypeText either_text(const TypeText& type, const std::string& word);

// A value, or a word that stands for none.
template <class Type>
struct OrWord {
  using Value = std::optional<typename Type::Value>;
  Type type;
  std::string instead;

  std::string name() const { return type.name() + ", or " + instead; }
  TypeText text() const { return either_text(type.text(), instead); }
  std::optional<Value> read(const Item& item) const {
    if (item.is(Node::Kind::scalar) && item.node.text == instead)
      return std::optional<Value>(Value{});
    const std::size_t before = item.faults.size();
    const auto value = type.read(item);
    if (value) return std::optional<Value>(Value(*value));
    if (item.faults.size() == before) return std::nullopt;
    ScenarioError& error = item.faults.all().back();
    error.why += ", or " + instead;
    if (item.is(Node::Kind::scalar) && in_lower_case(item.node.text) == instead)
      error.nearest = instead;  // None, from Python.
    return std::nullopt;
  }
  std::string write(const Value& value, Style style) const {
    return value ? type.write(*value, style) : write_text(instead, style);
  }
};

// cuda_graph.max_packed_seqs: one bucket is the same as a list of it.
struct Buckets {
  using Value = std::vector<std::int64_t>;
  std::string name() const;
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const;
};

// fsdp.unit: one number is blocks of every unit, a list is blocks per unit; they differ.
struct UnitType {
  struct Value {
    std::vector<std::int64_t> blocks;
    bool is_list = false;
  };
  std::string name() const;
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const;
};

struct MicrobatchChangeType {
  using Value = Scenario::MicrobatchChange;
  std::string name() const { return "{step, microbatches}"; }
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const;
};

struct ResumeType {
  using Value = Scenario::Resume;
  std::string name() const { return "{step, microbatch, data}"; }
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const;
};

struct DelayType {
  using Value = Scenario::Delay;
  std::string name() const { return "{stream, rank, spin}"; }
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const;
};

struct CountersType {
  using Value = std::map<Counter, Scenario::CounterRule, ByName>;
  std::string name() const { return "mapping of counters to an int, {min, max} or {same_as}"; }
  TypeText text() const;
  std::optional<Value> read(const Item& item) const;
  std::string write(const Value& value, Style style) const;
};

}  // namespace lockstep
