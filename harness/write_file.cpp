#include "harness/write_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/whole_file.h"
#include "harness/exit_status.h"

namespace lockstep {
namespace {

// A device or a pipe (/dev/stdout) cannot be replaced, only written.
bool is_written_in_place(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

void write_in_place(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file && std::fclose(file) != 0) || !written) {
    throw WorldError(path + ": cannot write: " + std::strerror(errno));
  }
}

}  // namespace

void write_file(const std::string& path, std::string_view text) {
  if (is_written_in_place(path)) return write_in_place(path, text);
  try {
    write_whole_file(path, {text});
  } catch (const std::runtime_error& error) {
    throw WorldError(error.what());
  }
}

}  // namespace lockstep
