// Writes a file whole or not at all, as engine/whole_file.h does; devices and pipes in place. Throws WorldError.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

void write_file(const std::string& path, std::string_view text);

}  // namespace lockstep
