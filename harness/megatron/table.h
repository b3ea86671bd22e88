// Megatron-LM's fields as data: the plain ones that have a key, those whose value
// the arithmetic of lockstep fixes, and remarks on those without a key.
#pragma once

#include <span>

#include "harness/megatron/options.h"

namespace lockstep {

// What must be there for a field to count.
enum class When : unsigned char {
  always,
  attention,
  mamba,
  mlp,
  experts,
  graphs,
  offload,
  sharding,
  bf16
};

// A field that is a key, value for value.
struct PlainKey {
  enum class As : unsigned char { integer, number, ratio, flag };
  const char* field;
  const char* key;
  As as = As::integer;
  When when = When::always;
};
std::span<const PlainKey> plain_keys();

// A field that must have this value, or what lockstep computes is something else.
struct FixedField {
  const char* field;
  const char* value;
  const char* here;  // What lockstep does.
  When when = When::always;
};
std::span<const FixedField> fixed_fields();

// Why a field has no key, for those where a user would ask. Such a field may be of another class
// than its group. If it has the value `as_here`, lockstep always does what was asked for.
struct Remark {
  const char* field;
  WithoutKey without_key;
  const char* text;
  const char* as_here = "";
};
std::span<const Remark> remarks();

}  // namespace lockstep
