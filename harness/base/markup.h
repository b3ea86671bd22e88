// Escapes that XML and HTML share.
#pragma once

namespace lockstep {

// The entity of a character that markup reserves; null for any other.
inline const char* entity_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return nullptr;
  }
}

}  // namespace lockstep
