// How the table of keys (schema.cpp) makes a Key: from its path, its meaning, its type and the
// member of Scenario that it stands for; and what else may be said of it.
#pragma once

#include <utility>

#include "scenarios/schema/schema.h"

namespace lockstep {

// `get` and `set` take and give the value of a scenario.
template <class Type, class Get, class Set>
Key key(const char* path, Meaning meaning, Type type, Get get, Set set) {
  Key made(path, meaning, type);
  made.copy = [=](const Scenario& from, Scenario& to) { set(to, get(from)); };
  made.write = [=](const Scenario& scenario, Style style) {
    return type.write(get(scenario), style);
  };
  made.read = [=](const Item& item, Scenario& scenario) {
    if (auto value = type.read(item)) set(scenario, std::move(*value));
  };
  return made;
}

// `member` returns a reference to the value in a scenario.
template <class Type, class Member>
Key key(const char* path, Meaning meaning, Type type, Member member) {
  return key(path, meaning, type, member,
             [=](Scenario& s, typename Type::Value v) { member(s) = std::move(v); });
}

// Where `is_read` is false the key says nothing, and no form of a scenario has it.
Key counts_if(Key key, bool (*is_read)(const Scenario&));
// The same for keys of data that only some kinds of data read.
template <class... Kind>
Key only_for(Key key, Kind... kind) {
  key.counts = [=](const Scenario& s) { return ((s.data.kind == kind) || ...); };
  return key;
}

// A list in lists: whoever writes too few brackets is told all levels at once, instead of that each
// number should be a list.
Key nested(Key key, int levels, const char* shape);

// A key that schema 1 gained after its first tokens were printed. The canonical form has it only
// where it differs from its default, so that older canonical forms and tokens keep their bytes.
Key added(Key key);
// The same for a key whose default follows from others.
Key unless(Key key, bool (*is_default)(const Scenario&));

}  // namespace lockstep
