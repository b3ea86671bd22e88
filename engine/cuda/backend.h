// Opens GPU `index`. Raises through the program where that fails.
#pragma once

#include <memory>

#include "engine/device/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_cuda_backend(int index);

}  // namespace lockstep
