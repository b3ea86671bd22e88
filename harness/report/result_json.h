// Results as the JSON that scripts rely on, and back: a worker's result travels through a pipe in
// this form.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "harness/case/verdict.h"

namespace lockstep {

boost::json::object to_json(const DeviceInfo& device);
boost::json::object to_json(const FirstDifference& difference);
boost::json::object to_json(const HazardRecord& hazard);
boost::json::object to_json(const CaseResult& result);
CaseResult result_from_json(const boost::json::value& value);

// One run: tool, version, revision, device, summary, results.
boost::json::object run_to_json(const std::vector<CaseResult>& results, const DeviceInfo& device,
                                double seconds);

// Returns the number of results with this verdict.
std::int64_t count_of(const std::vector<CaseResult>& results, Verdict verdict);

}  // namespace lockstep
