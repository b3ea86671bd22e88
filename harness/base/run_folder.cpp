#include "harness/base/run_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "harness/base/errors.h"

namespace lockstep {

RunFolder::RunFolder()
    : path_((std::filesystem::temp_directory_path() / "lockstep-run-XXXXXX").string()) {
  if (!::mkdtemp(path_.data()))
    throw WorldError(path_ + ": cannot make this folder: " + std::strerror(errno));
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
