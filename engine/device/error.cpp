#include <cstring>

#include "engine/device/backend.h"

namespace lockstep {
namespace {

std::string sentence(const std::string& code, const std::string& call,
                     const std::source_location& at) {
  const char* slash = std::strrchr(at.file_name(), '/');
  return call + ": " + code + " (" + (slash ? slash + 1 : at.file_name()) + ":" +
         std::to_string(at.line()) + ")";
}

}  // namespace

DeviceError::DeviceError(std::string code, const std::string& call, std::source_location at)
    : std::runtime_error(sentence(code, call, at)), code_(std::move(code)) {}

}  // namespace lockstep
