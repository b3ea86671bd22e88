// Files and descriptors that take a text whole.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Whole or not at all, as engine/whole_file.h does; devices and pipes in place. Throws WorldError.
void write_file(const std::string& path, std::string_view text);

// False where the rest could not be written, as where no reader is left: errno says why. Also between fork and exit.
bool write_all(int descriptor, std::string_view text);

}  // namespace lockstep
