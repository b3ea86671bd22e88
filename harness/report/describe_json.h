// The JSON of `describe --json`: the meaning of a scenario file for scripts, or the errors that
// refuse it.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "scenarios/io/reader.h"

namespace lockstep {

// `legal`, `built` and `errors` are there for any file; the other parts for a legal one,
// `expected_counters` for one that is built too and can be counted at once. `scenario` is its
// canonical form, which is a scenario file.
std::string describe_json(const ReadResult& read);
// The JSON without a scenario: which part of the schema is built, and the table of what may be
// offloaded, as text.
boost::json::object built_json();

}  // namespace lockstep
