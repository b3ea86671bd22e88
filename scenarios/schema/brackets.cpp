#include "scenarios/schema/brackets.h"

#include <algorithm>
#include <vector>

#include "scenarios/schema/types.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {

std::optional<int> levels_of_brackets(const Node& node) {
  constexpr int kAny = 1000;
  if (node.kind == Node::Kind::scalar) return 0;
  if (node.kind != Node::Kind::sequence) return std::nullopt;
  int levels = kAny;
  for (const Node& item : node.items) {
    const std::optional<int> inside = levels_of_brackets(item);
    if (!inside || (levels < kAny && *inside < kAny && levels != *inside + 1)) return std::nullopt;
    levels = std::min(levels, *inside + 1);
  }
  return levels;
}

std::string numbers_as_written(const Node& node) {
  constexpr std::size_t kMostQuoted = 100;
  if (node.kind == Node::Kind::scalar) return parse_int(node.text) ? node.text : "";
  std::vector<std::string> items;
  std::size_t length = 0;
  for (const Node& item : node.items) {
    items.push_back(numbers_as_written(item));
    length += items.back().size() + 2;
    if (items.back().empty() || length > kMostQuoted) return "";
  }
  return items.empty() ? "" : write_list(items, Style::yaml);
}

}  // namespace lockstep
