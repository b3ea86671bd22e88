// Writes a whole text to a file or a descriptor.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Writes all or nothing, as engine/checkpoint/whole_file.h does, but to devices and pipes in place.
// Throws WorldError.
void write_file(const std::string& path, std::string_view text);
// Throws at once, not after hours of work, what write_file would throw if the path's folder does
// not exist or takes no file.
void require_place_for(const std::string& path);

// Returns false, with the reason in errno, if part could not be written, as when a pipe has no
// reader. May be called between fork and exit.
bool write_all(int descriptor, std::string_view text);

}  // namespace lockstep
