// The folder of the built-in scenarios, and the scenario files of a folder.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The Python package of adapters, beside the scenarios.
std::string adapters_folder();
// LOCKSTEP_LIBRARY, else share/lockstep/scenarios/library beside the program's folder or the one
// above it. In a build tree that is a link to the source tree's, which is returned.
std::string library_folder();
// The files that are verified where none is named: the files of that folder, and if it is called
// `library`, of `regressions` beside it.
std::vector<std::string> library_files();
// Every .yaml and .yml below `folder`, in byte order of their paths. Links are not followed.
std::vector<std::string> scenario_files(const std::string& folder);
// Whether the file lies in a folder named `refused`.
bool lies_under_refused(const std::string& path);

}  // namespace lockstep
