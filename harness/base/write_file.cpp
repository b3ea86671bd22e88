#include "harness/base/write_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/checkpoint/whole_file.h"
#include "harness/base/errors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Where the links of a path lead: to a file, or to an open descriptor of this process
// (/dev/stdout). Whoever opened that would not see a file put into its place.
struct Target {
  fs::path file;
  int descriptor = -1;
};
Target behind_links(fs::path path) {
  for (int links = 0; links < 40; ++links) {
    std::error_code absent;
    const fs::path folder =
        fs::canonical(path.has_parent_path() ? path.parent_path() : ".", absent);
    if (absent || !fs::is_symlink(path, absent)) break;
    if (folder == fs::canonical("/proc/self/fd", absent))
      return {path, std::atoi(path.filename().c_str())};
    path = folder / fs::read_symlink(path);
  }
  return {path};
}

// A device or a pipe cannot be replaced, only written.
bool is_written_in_place(const Target& target) {
  struct stat status {};
  return target.descriptor >= 0 || (::stat(target.file.c_str(), &status) == 0 &&
                                    !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
}

void write_in_place(const std::string& path, const Target& target, std::string_view text) {
  std::fflush(stdout);  // Keeps earlier output before this text.
  std::FILE* file = target.descriptor >= 0 ? ::fdopen(::dup(target.descriptor), "w")
                                           : std::fopen(target.file.c_str(), "w");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file && std::fclose(file) != 0) || !written) {
    throw WorldError(path + ": cannot write: " + std::strerror(errno));
  }
}

}  // namespace

void write_file(const std::string& path, std::string_view text) {
  const Target target = behind_links(path);
  if (is_written_in_place(target)) return write_in_place(path, target, text);
  try {
    write_whole_file(target.file.string(), {text});
  } catch (const std::runtime_error& error) {
    throw WorldError(error.what());
  }
}

void require_place_for(const std::string& path) {
  const Target target = behind_links(path);
  if (is_written_in_place(target)) return;
  const fs::path folder = target.file.has_parent_path() ? target.file.parent_path() : ".";
  std::error_code unknown;
  int error = ::access(folder.c_str(), W_OK | X_OK) != 0 ? errno : 0;
  if (error == 0 && !fs::is_directory(folder, unknown)) error = ENOTDIR;
  if (error == 0 && fs::is_directory(target.file, unknown)) error = EISDIR;
  if (error != 0) throw WorldError(path + ": cannot be written there: " + std::strerror(error));
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    text.remove_prefix(done);
  }
  return true;
}

}  // namespace lockstep
