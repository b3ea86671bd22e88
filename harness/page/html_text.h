// Escapes any text that becomes part of an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Escapes text for element content and for attributes in double quotes. Control bytes and invalid
// UTF-8 show as U+FFFD.
std::string html(std::string_view text);
// <tag class="name">text</tag>, with the text escaped.
std::string element(const char* tag, const char* name, std::string_view text);

}  // namespace lockstep
