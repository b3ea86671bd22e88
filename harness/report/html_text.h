// Text that becomes part of an HTML page, whatever is in it.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// For element content and for attributes in double quotes. Control bytes, and what is no UTF-8,
// show as U+FFFD.
std::string html(std::string_view text);
// <tag class="name">text</tag>, with the text escaped.
std::string element(const char* tag, const char* name, std::string_view text);

}  // namespace lockstep
