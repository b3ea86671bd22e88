// The scenarios of the library, read once.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/io/reader.h"
#include "tests/support/tree.h"

namespace lockstep {

inline const std::filesystem::path kLibrary =
    std::filesystem::path(root_path()) / "scenarios/library";

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// The files that hold, in all rooms of the library.
inline std::vector<std::filesystem::path> library_files() {
  std::vector<std::filesystem::path> files = files_in(kLibrary);
  std::erase_if(files, [](const std::filesystem::path& file) {
    return file.parent_path().filename() == "refused";
  });
  return files;
}

inline const std::vector<Scenario>& library() {
  static const std::vector<Scenario> scenarios = [] {
    std::vector<Scenario> list;
    for (const std::filesystem::path& file : library_files())
      list.push_back(read_scenario_file(file.string()).scenario);
    return list;
  }();
  return scenarios;
}

}  // namespace lockstep
