// The types as the reference and a JSON Schema (draft 7) describe them.
#include "scenarios/schema/types.h"

namespace lockstep {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string object(const Fields& fields) { return write_record(fields, Style::json); }
std::string text(const std::string& value) { return write_text(value, Style::json); }

std::string list(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const std::string& value : values) items.push_back(text(value));
  return write_list(items, Style::json);
}

std::string spelled(const std::vector<std::string>& values, const char* separator) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : separator) + value;
  return out;
}

// A range of integers that is open at the ends that no file reaches.
std::string range_of(std::int64_t min, std::int64_t max) {
  if (min <= -kMostInt) return "any";
  return max == kMostInt ? "at least " + std::to_string(min)
                         : std::to_string(min) + ".." + std::to_string(max);
}

std::string any_of(const std::vector<std::string>& schemas) {
  return object({{"anyOf", write_list(schemas, Style::json)}});
}

// A mapping that has no other members than these.
std::string record(const Fields& members, const std::vector<std::string>& required) {
  Fields fields{
      {"type", text("object")}, {"additionalProperties", "false"}, {"properties", object(members)}};
  if (!required.empty()) fields.emplace_back("required", list(required));
  return object(fields);
}

}  // namespace

TypeText Int::text() const {
  Fields fields{{"type", "\"integer\""}};
  if (min > -kMostInt) fields.emplace_back("minimum", std::to_string(min));
  if (max < kMostInt) fields.emplace_back("maximum", std::to_string(max));
  if (even) fields.emplace_back("multipleOf", "2");
  return {even ? "even int" : "int", range_of(min, max), object(fields)};
}

TypeText Number::text() const {
  Fields fields{{"type", "\"number\""},
                {above_min ? "exclusiveMinimum" : "minimum", write_number(min)},
                {below_max ? "exclusiveMaximum" : "maximum", write_number(max)}};
  const std::string low = (above_min ? "above " : "at least ") + write_number(min);
  const std::string high = (below_max ? ", below " : ", at most ") + write_number(max);
  return {"number", low + high, object(fields)};
}

TypeText RatioType::text() const {
  const bool from_zero = min_millionths == 0;
  const std::string low = from_zero ? "0.." : "above 0, up to ";
  return {"ratio", low + write_ratio({max_millionths}),
          object({{"type", "\"number\""},
                  {from_zero ? "minimum" : "exclusiveMinimum", "0"},
                  {"maximum", write_ratio({max_millionths})}})};
}

TypeText Bool::text() const { return {"bool", "true, false", object({{"type", "\"boolean\""}})}; }

TypeText Text::text() const { return {"text", range, "{\"type\":\"string\"," + json + "}"}; }

TypeText Name::text() const {
  const bool many = names.size() > 24;
  return {"word", many ? names[0] + ", " + names[1] + " ... " + names.back() : spelled(names, ", "),
          object({{"enum", list(names)}})};
}

TypeText list_text_of(const TypeText& item, std::size_t min, std::size_t max) {
  Fields fields{{"type", "\"array\""}, {"items", item.json}};
  if (min != 0) fields.emplace_back("minItems", std::to_string(min));
  if (max != SIZE_MAX) fields.emplace_back("maxItems", std::to_string(max));
  const std::string count = max != SIZE_MAX && max == min ? std::to_string(min) + " items, "
                            : min != 0                    ? "not empty, "
                                                          : "";
  // The innermost of nested lists says that none of them is empty.
  const std::string range =
      item.range.rfind("not empty, ", 0) == 0 ? item.range : count + item.range;
  return {"list of " + item.kind, range, object(fields)};
}

TypeText set_text_of(const std::vector<std::string>& words, std::size_t min) {
  Fields fields{
      {"type", "\"array\""}, {"items", object({{"enum", list(words)}})}, {"uniqueItems", "true"}};
  if (min != 0) fields.emplace_back("minItems", std::to_string(min));
  return {"set of words", (min != 0 ? "not empty, of " : "") + spelled(words, ", "),
          object(fields)};
}

TypeText either_text(const TypeText& type, const std::string& word) {
  return {type.kind + " or word", type.range + ", or " + word,
          any_of({type.json, object({{"const", write_text(word, Style::json)}})})};
}

TypeText Buckets::text() const {
  const TypeText list = List<Int>{kBucket, 1, 8}.text();
  return {"int or list of int", kBucket.text().range + ", or an increasing list of 1..8 of them",
          any_of({kBucket.text().json, list.json})};
}

TypeText UnitType::text() const {
  const TypeText list = List<Int>{kUnitBlocks, 1, 128}.text();
  return {"int or list of int", kUnitBlocks.text().range + ", or a list of 1..128 of them",
          any_of({kUnitBlocks.text().json, list.json})};
}

TypeText MicrobatchChangeType::text() const {
  return {"record", "{step: int, microbatches: int " + kMicrobatches.text().range + "}",
          record({{"step", kAnyInt.text().json}, {"microbatches", kMicrobatches.text().json}},
                 {"step", "microbatches"})};
}

TypeText ResumeType::text() const {
  return {"record", "{step: int, microbatch: int, data: int " + kRanks.text().range + "}",
          record({{"step", kAnyInt.text().json},
                  {"microbatch", kAnyInt.text().json},
                  {"data", kRanks.text().json}},
                 {"step"})};
}

TypeText DelayType::text() const {
  const TypeText stream = Word<DelayStream>{}.text();
  const TypeText rank = OrWord<Int>{kAnyInt, "all"}.text();
  return {"record",
          "{stream: word, rank: int or all, spin: int " + kSpin.text().range +
              "}; streams: " + stream.range,
          record({{"stream", stream.json}, {"rank", rank.json}, {"spin", kSpin.text().json}},
                 {"stream", "spin"})};
}

TypeText CountersType::text() const {
  const std::string count = Int{}.text().json;
  const std::string range = record({{"min", count}, {"max", count}}, {});
  const std::string same =
      record({{"same_as", object({{"enum", list(counter_names())}})}}, {"same_as"});
  Fields members;
  // A range is not empty: it has `min`, `max` or both.
  const std::string filled = range.substr(0, range.size() - 1) + ",\"minProperties\":1}";
  for (const std::string& counter : counter_names())
    members.emplace_back(counter, any_of({count, filled, same}));
  return {"mapping", "counter: int, {min, max} (either), or {same_as: counter}",
          record(members, {})};
}

}  // namespace lockstep
