// The reason why a case failed, without the place. A smaller scenario must fail for the same one.
#pragma once

#include <string>

#include "harness/case/verdict.h"

namespace lockstep {

// A tensor's name without the layer's number: "layers.3.norm.out" is of kind "layers.#.norm.out".
std::string tensor_kind(const std::string& tensor);
// A sentence without its numbers, places, digests, folders and template arguments; of a counter
// that is not as expected, whether it is too small or too large.
std::string reason_kind(const std::string& reason);

// Same verdict, same judge, and the first difference in a tensor of the same kind that the same op
// writes; where no tensor is named, the same sentence but for its numbers. A shrinker that kept
// less would slip to another bug.
bool same_reason(const CaseResult& a, const CaseResult& b);
// Other effects of what may be one cause, as far as which is seen first is the order of a list or
// of a schedule, or the size of a difference: a gradient that the same op writes, a hazard of the
// same kind for want of the same edge, any result of a run that was saved and loaded.
bool same_cause(const CaseResult& a, const CaseResult& b);

// "activation-norm-out": the reason as a scenario's name, [a-z0-9-], at most 40 characters.
std::string reason_name(const CaseResult& result);

}  // namespace lockstep
