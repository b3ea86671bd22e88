// Atomic file replacement: a file is complete or absent, whenever the writer dies.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep {

// Writes the concatenated `parts` to PATH.tmp.PID.RANDOM, which it locks, syncs it, renames it over
// `path` and syncs the folder. Removes the temporaries that dead writers of `path` left. Throws
// std::runtime_error with the path and the system's reason.
void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts);

// Removes the temporaries of `path` that dead processes left, and those of this process too if
// `ours`: it must write no more.
void remove_temporaries_of(const std::string& path, bool ours);

// Removes the temporaries that dead processes left in `folder`, of files whose name
// `is_ours` takes.
void remove_leftovers(const std::string& folder,
                      const std::function<bool(const std::string& name)>& is_ours);

}  // namespace lockstep
