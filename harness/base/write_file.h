// Files and descriptors that take a text whole.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Whole or not at all, as engine/checkpoint/whole_file.h does; devices and pipes in place. Throws
// WorldError.
void write_file(const std::string& path, std::string_view text);
// At once, not after hours of work: throws what write_file would if the path's folder is not there
// or takes no file.
void require_place_for(const std::string& path);

// False where the rest could not be written, as where no reader is left: errno says why. Also
// between fork and exit.
bool write_all(int descriptor, std::string_view text);

}  // namespace lockstep
