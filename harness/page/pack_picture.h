// A step's packs as a drawing: documents as blocks along the rows, the row that differs marked. For
// the HTML page.
#pragma once

#include <string>

#include "harness/case/verdict.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

// SVG, to be put into a page. `where` is of this step; packs beyond the first sixteen are drawn
// only if it is in one.
std::string pack_picture(const Scenario::Data& data, const StepData& step,
                         const FirstDifference& where);

}  // namespace lockstep
