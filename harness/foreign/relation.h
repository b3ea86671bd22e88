// The relations between runs of one engine (docs/engine-protocol.md, section 13), as a table.
#pragma once

#include <string>
#include <vector>

#include "harness/foreign/engine_case.h"

namespace lockstep::foreign {

struct Relation {
  const char* id;       // "R7"
  const char* name;     // "one-voice-document"
  const char* equal;    // Which runs, and what of them must be equal.
  const char* promise;  // Why, or on whose word.
  // Why it says nothing about this case, as far as scenario, feed and hello tell; "" if it applies.
  std::string (*why_not)(const EngineCase&);
  // Throws Violated or Unstable, NotApplicable where only a run could tell, and what runs throw.
  void (*judge)(EngineCase&, const Choices&);
};

// In the order in which they are judged.
const std::vector<Relation>& relations();

// A relation and the choices that it shall make; without choices it makes all.
struct AskedRelation {
  const Relation* relation = nullptr;
  Choices choices = {};
};
// "R7" or "one-voice-document:half=odd". Throws RequestError.
AskedRelation asked_relation(const std::string& text);
// "R2,R7:half=odd,R5": several, with commas between the choices of one too.
std::vector<AskedRelation> asked_relations(const std::string& text);

}  // namespace lockstep::foreign
