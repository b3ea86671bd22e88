// The rules of reading as the reference prints them. The code that checks them lies in syntax,
// schema and io.
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// A scenario in memory has been read already, so that no rule of reading can refuse it.
Findings checked_while_reading(const Scenario&) { return {}; }

}  // namespace

std::span<const Rule> reading_rules() {
  static constexpr Rule kRules[] = {
      {"Y01",
       "a file that is empty, over 1 MiB, nested deeper than 32 levels, not UTF-8, with NUL or "
       "control bytes (tab and "
       "line ends excepted), or with more than one document; a file that cannot be read",
       "the size is checked before parsing", checked_while_reading, "(file)",
       "{schema: 1, name: x"},
      {"Y02", "aliases, anchors, tags, directives, merge keys `<<`",
       "the reader works on parser events, so nothing is expanded", checked_while_reading, "(any)",
       "{schema: 1, name: &anchor x}"},
      {"Y03", "an unknown key",
       "nothing is silently ignored; the nearest key has the least edit distance in that section",
       checked_while_reading, "(any)", "{schema: 1, name: x, model: {hiden: 32}}"},
      {"Y04", "the same key twice in one mapping", "one of the two would be ignored",
       checked_while_reading, "(any)", "{schema: 1, name: x, name: y}"},
      {"Y05",
       "a wrong type. `int`: decimal digits, optional `-` (not `1.0`, `010`, `0x10`, `1_000`, "
       "`\"3\"`). "
       "`number`: decimal, "
       "optional exponent, an int will do; no `.inf`, `.nan`. `ratio`: 0 or more, no exponent, at "
       "most 6 digits after "
       "the point. `bool`: `true`, `false` only (not `yes`, `on`). `text`: plain or quoted, single "
       "line. Null or an "
       "empty value is never legal",
       "YAML 1.1 and 1.2 must agree on every value; a ratio is kept as an integer of millionths",
       checked_while_reading, "(any)", "{schema: 1, name: x, model: {hidden: 32.0}}"},
      {"Y06",
       "a value out of its range or not one of its words; an item twice in a `set` (a list of "
       "words whose order does "
       "not matter)",
       "numbers never change meaning", checked_while_reading, "(any)",
       "{schema: 1, name: x, model: {hidden: 0}}"},
      {"Y07",
       "`schema` or `name` missing, `schema` not 1, `numerics` missing in a file that lies in a "
       "folder `scenarios` or "
       "below one",
       "these keys say what the file means", checked_while_reading, "schema name numerics",
       "{name: x}"},
      {"Y08",
       "a data path that is missing or unreadable, a folder with no document, a file with a NUL "
       "byte, a JSONL record "
       "that does not parse or lacks its field, bytes with another digest",
       "the documents are what is trained on; file and line are named", checked_while_reading,
       "data.path data.digest", "{schema: 1, name: x, data: {kind: text, path: nowhere}}"},
  };
  return kRules;
}

}  // namespace lockstep
