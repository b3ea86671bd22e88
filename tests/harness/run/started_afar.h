// A process of a run as a launcher starts it on a machine of its own, of which there is one for
// each process.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/support/started.h"

namespace lockstep {

// `lockstep train` with these words, as process `rank` of `size`, which meet at this port. What it
// says goes to `output`.
inline std::unique_ptr<Started> started_afar(const std::string& words, int rank, int size,
                                             std::uint16_t port, const std::string& output) {
  const std::map<std::string, std::string> variables{{"RANK", std::to_string(rank)},
                                                     {"WORLD_SIZE", std::to_string(size)},
                                                     {"LOCAL_RANK", "0"},
                                                     {"LOCAL_WORLD_SIZE", "1"},
                                                     {"MASTER_ADDR", "127.0.0.1"},
                                                     {"MASTER_PORT", std::to_string(port)}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  auto one =
      std::make_unique<Started>("train --device sim --quiet --digest-every 1 " + words, 0, output);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return one;
}

}  // namespace lockstep
