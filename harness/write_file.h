// Writes a file whole or not at all: a temporary beside it, synced, then renamed. Throws WorldError.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

void write_file(const std::string& path, std::string_view text);

}  // namespace lockstep
