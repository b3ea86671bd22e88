// A scenario file as a tree of nodes that know their places: rules Y01, Y02 and Y04. Nothing is
// expanded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/syntax/faults.h"

namespace lockstep {

struct Node {
  // `refused` is an alias: reported already, and of no type.
  enum class Kind { null, scalar, sequence, mapping, refused };
  Kind kind = Kind::null;
  bool quoted = false;      // Scalars: '...' or "..."; a quoted 3 is no int.
  bool single_line = true;  // Scalars: written on one line, and not as a block.
  std::string text;         // Scalars, as decoded.
  FilePlace place;
  std::vector<Node> keys;   // Mappings, as many as items.
  std::vector<Node> items;  // Sequences and mappings.
};

inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
inline constexpr int kMaxDepth = 32;

// Faults of the bytes themselves (Y01), looked for before anything parses them. False: do not
// parse.
bool check_bytes(const std::string& bytes, Faults& faults);

// The one document of the file, which check_bytes has let pass; nothing where it is no YAML or has
// no document.
std::optional<Node> parse_document(const std::string& bytes, Faults& faults);

// The position of the value of a key such as "data.documents[0][2]", or of the innermost node
// around it in the file.
FilePlace find_place(const Node& root, const std::string& key);

}  // namespace lockstep
