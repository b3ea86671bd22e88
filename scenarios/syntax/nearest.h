// Which of some names somebody meant.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Insertions, deletions and replacements that turn one into the other.
inline int edit_distance(std::string_view from, std::string_view to) {
  std::vector<int> row(to.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const int replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

inline std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// The name with the least edit distance; of several the one that is nearest but for the case of
// letters, of those the first. If that is more than a third of the longer word's letters away, a
// name that begins as the word does, or "".
inline std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  const auto distance = [&](const std::string& name) {
    return std::pair(edit_distance(wanted, name),
                     edit_distance(in_lower_case(wanted), in_lower_case(name)));
  };
  const auto closer = [&](const std::string& a, const std::string& b) {
    return distance(a) < distance(b);
  };
  const auto best = std::min_element(names.begin(), names.end(), closer);
  if (best == names.end()) return "";
  const auto steps = static_cast<std::size_t>(distance(*best).second);
  if (3 * steps <= std::max(wanted.size(), best->size())) return *best;
  // Whoever wrote the first half of a name, or a word that begins like it, meant it.
  for (const std::string& name : names) {
    const auto [end, _] = std::mismatch(name.begin(), name.end(), wanted.begin(), wanted.end());
    const std::ptrdiff_t same = end - name.begin();
    if (same >= 3 && 2 * same >= std::max(std::ssize(wanted), std::ssize(name))) return name;
  }
  return "";
}

// The same as an ending of a message: "; nearest: verify", or "".
inline std::string nearest_hint(std::string_view wanted, const std::vector<std::string>& names,
                                const std::string& before = "; nearest: ") {
  const std::string name = nearest_name(wanted, names);
  return name.empty() ? "" : before + name;
}

}  // namespace lockstep
