// The types that are records or may have two shapes.
#include "scenarios/schema/types.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

// A mapping with few known keys. A value that is wrong does not hide the other keys.
class Record {
 public:
  Record(const Item& item, const std::string& wanted, const std::vector<std::string>& known)
      : item_(item) {
    if (!item.is(Node::Kind::mapping)) {
      item.wrong_type(wanted);
      return;
    }
    is_mapping_ = is_complete_ = true;
    for (const Node& key : item.node.keys) {
      if (key.kind == Node::Kind::scalar &&
          std::find(known.begin(), known.end(), key.text) != known.end())
        continue;
      item.faults.add("Y03", key.place, item.key + "." + key.text, "is no key of schema 1",
                      "it takes " + wanted,
                      item.faults.is_full("Y03") ? "" : nearest_name(key.text, known));
      is_complete_ = false;
    }
  }
  // Whether all requested fields were found, and nothing else.
  explicit operator bool() const { return is_complete_; }

  bool has(const std::string& name) const { return find(name) != nullptr; }

  // The value of a key; nothing if it is not there, or wrong, and then the record is not complete.
  template <class Type>
  std::optional<typename Type::Value> get(const std::string& name, const Type& type) {
    const Node* node = find(name);
    if (node == nullptr) return std::nullopt;
    auto value = type.read(Item{*node, item_.key + "." + name, item_.faults});
    if (!value) is_complete_ = false;
    return value;
  }
  template <class Type>
  std::optional<typename Type::Value> need(const std::string& name, const Type& type) {
    if (!has(name)) {
      item_.faults.add("Y05", item_.node.place, item_.key, "lacks the key `" + name + "`",
                       "it has no default", name + ": " + type.name());
      is_complete_ = false;
    }
    return get(name, type);
  }

 private:
  const Node* find(const std::string& name) const {
    for (std::size_t i = 0; is_mapping_ && i < item_.node.keys.size(); ++i) {
      if (item_.node.keys[i].text == name) return &item_.node.items[i];
    }
    return nullptr;
  }

  const Item& item_;
  bool is_mapping_ = false, is_complete_ = false;
};

// The value of `same_as` names a counter as the keys of `counters` do, so an unknown one is Y03.
struct CounterName {
  using Value = Counter;
  std::optional<Value> read(const Item& item) const {
    const std::vector<std::string>& known = counter_names();
    const std::optional<std::string> text = read_scalar_text(item, "the name of a counter");
    if (!text) return std::nullopt;
    if (std::find(known.begin(), known.end(), *text) != known.end())
      return counter_from_text(*text);
    item.faults.add("Y03", item.node.place, item.key, "there is no counter " + quoted(*text),
                    "nothing is compared", nearest_name(*text, known));
    return std::nullopt;
  }
};

const Int kCount{};

std::optional<Scenario::CounterRule> read_counter(const Item& item) {
  Scenario::CounterRule rule;
  if (!item.is(Node::Kind::mapping)) {
    rule.min = rule.max = kCount.read(item);
    return rule.min ? std::optional(rule) : std::nullopt;
  }
  Record record(item, "{min, max}, either, or {same_as: counter}", {"min", "max", "same_as"});
  if (!record) return std::nullopt;
  if (item.node.keys.empty() || (record.has("same_as") && item.node.keys.size() > 1)) {
    item.wrong_type("an int, {min, max} (either) or {same_as: counter}", "{min: 1}");
    return std::nullopt;
  }
  rule.min = record.get("min", kCount);
  rule.max = record.get("max", kCount);
  rule.same_as = record.get("same_as", CounterName{});
  if (!record) return std::nullopt;
  if (rule.min && rule.max && *rule.min > *rule.max) {
    item.out_of_range("a min of at most max", "{min: " + std::to_string(*rule.max) + "}");
    return std::nullopt;
  }
  return rule;
}

std::string write_counter(const Scenario::CounterRule& rule, Style style) {
  if (rule.same_as)
    return write_record({{"same_as", write_text(to_text(*rule.same_as), style)}}, style);
  if (rule.min && rule.min == rule.max) return std::to_string(*rule.min);
  std::vector<std::pair<std::string, std::string>> fields;
  if (rule.min) fields.emplace_back("min", std::to_string(*rule.min));
  if (rule.max) fields.emplace_back("max", std::to_string(*rule.max));
  return write_record(fields, style);
}

}  // namespace

std::string Buckets::name() const { return kBucket.name() + ", or an increasing list of 1..8"; }

// A capacity by its percentile, which the packs decide and not the file.
static bool refuses_percentile(const Item& item) {
  const std::string text = in_lower_case(item.node.text);
  const bool is_percentile = item.is(Node::Kind::scalar) && text.size() > 1 && text[0] == 'p' &&
                             text.find_first_not_of("0123456789", 1) == std::string::npos;
  if (is_percentile) {
    item.faults.add("Y05", item.node.place, item.key, "is " + quoted(item.node.text),
                    "it takes a number: `lockstep plan-packing FILE --at " + text + "` gives it");
  }
  return is_percentile;
}

std::optional<std::vector<std::int64_t>> Buckets::read(const Item& item) const {
  bool refused = refuses_percentile(item);
  for (std::size_t i = 0; item.is(Node::Kind::sequence) && i < item.node.items.size(); ++i)
    refused = refuses_percentile(item.at(i)) || refused;
  if (refused) return std::nullopt;
  if (item.is(Node::Kind::sequence)) return List<Int>{kBucket, 1, 8}.read(item);
  const std::optional<std::int64_t> one = kBucket.read(item);
  return one ? std::optional(std::vector{*one}) : std::nullopt;
}

std::string Buckets::write(const Value& value, Style style) const {
  return value.size() == 1 ? std::to_string(value.front()) : List<Int>{}.write(value, style);
}

std::string UnitType::name() const {
  return kUnitBlocks.name() + " blocks, or a list of blocks per unit";
}

std::optional<UnitType::Value> UnitType::read(const Item& item) const {
  if (item.is(Node::Kind::sequence)) {
    std::optional<std::vector<std::int64_t>> list = List<Int>{kUnitBlocks, 1, 128}.read(item);
    return list ? std::optional(Value{*list, true}) : std::nullopt;
  }
  const std::optional<std::int64_t> one = kUnitBlocks.read(item);
  return one ? std::optional(Value{{*one}, false}) : std::nullopt;
}

std::string UnitType::write(const Value& value, Style style) const {
  return value.is_list ? List<Int>{}.write(value.blocks, style)
                       : std::to_string(value.blocks.front());
}

std::optional<Scenario::MicrobatchChange> MicrobatchChangeType::read(const Item& item) const {
  Record record(item, name(), {"step", "microbatches"});
  if (!record) return std::nullopt;
  const auto step = record.need("step", kAnyInt);
  const auto microbatches = record.need("microbatches", kMicrobatches);
  if (!record) return std::nullopt;
  return Value{*step, *microbatches};
}

std::string MicrobatchChangeType::write(const Value& value, Style style) const {
  return write_record(
      {{"step", std::to_string(value.step)}, {"microbatches", std::to_string(value.microbatches)}},
      style);
}

std::optional<Scenario::Resume> ResumeType::read(const Item& item) const {
  Record record(item, name(), {"step", "microbatch", "data"});
  if (!record) return std::nullopt;
  const auto step = record.need("step", kAnyInt);
  const auto microbatch = record.get("microbatch", kAnyInt);
  const auto data = record.get("data", kRanks);
  if (!record) return std::nullopt;
  return Value{*step, microbatch.value_or(0), data.value_or(0)};
}

std::string ResumeType::write(const Value& value, Style style) const {
  std::vector<std::pair<std::string, std::string>> fields{{"step", std::to_string(value.step)}};
  if (value.microbatch != 0) fields.emplace_back("microbatch", std::to_string(value.microbatch));
  if (value.data != 0) fields.emplace_back("data", std::to_string(value.data));
  return write_record(fields, style);
}

std::optional<Scenario::Delay> DelayType::read(const Item& item) const {
  Record record(item, name(), {"stream", "rank", "spin"});
  if (!record) return std::nullopt;
  const auto stream = record.need("stream", Word<DelayStream>{});
  const auto rank = record.get("rank", OrWord<Int>{kAnyInt, "all"});
  const auto spin = record.need("spin", kSpin);
  if (!record) return std::nullopt;
  return Value{*stream, rank.value_or(std::nullopt), *spin};
}

std::string DelayType::write(const Value& value, Style style) const {
  return write_record({{"stream", write_text(word(value.stream), style)},
                       {"rank", OrWord<Int>{{}, "all"}.write(value.rank, style)},
                       {"spin", std::to_string(value.spin)}},
                      style);
}

std::optional<CountersType::Value> CountersType::read(const Item& item) const {
  Record record(item, name(), counter_names());
  if (!record) return std::nullopt;
  Value rules;
  for (std::size_t i = 0; i < item.node.keys.size(); ++i) {
    const std::string& counter = item.node.keys[i].text;
    const auto rule = read_counter({item.node.items[i], item.key + "." + counter, item.faults});
    if (const auto known = counter_from_text(counter); rule && known) rules[*known] = *rule;
  }
  return rules;
}

std::string CountersType::write(const Value& value, Style style) const {
  std::vector<std::pair<std::string, std::string>> fields;
  for (const auto& [counter, rule] : value)
    fields.emplace_back(to_text(counter), write_counter(rule, style));
  return write_record(fields, style);
}

}  // namespace lockstep
