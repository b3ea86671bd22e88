// PyTorch's step of the same model in a process of its own
// (adapters/lockstep_adapter/torch_step.py), so that both are timed by turns on one device.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/foreign/engine_process.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The documents of some steps: of each microbatch.
using LengthsOfSteps = std::vector<std::vector<MicrobatchLengths>>;

class Peer {
 public:
  struct Mode {
    std::string name;
    std::int64_t bytes = 0;  // That PyTorch holds once this mode is ready.
    std::string not_run;     // Why it cannot run.
  };
  // Starts `python`, which builds the model and every mode. `all`: packs that are at least as large
  // as any later ones. Throws WorldError where there is no Python, no PyTorch or no GPU.
  Peer(const std::string& python, const Scenario& scenario, const LengthsOfSteps& all);

  const std::vector<Mode>& modes() const { return modes_; }
  const std::string& device() const { return device_; }    // "cpu", or the name of a GPU.
  const std::string& version() const { return version_; }  // PyTorch's.
  // Seconds of each of these steps, by CUDA events.
  std::vector<double> seconds(const std::string& mode, const LengthsOfSteps& steps);

 private:
  boost::json::object ask(boost::json::object request, double patience);

  foreign::EngineProcess process_;
  std::vector<Mode> modes_;
  std::string device_, version_;
};

// One row: a mode of either side.
struct PeerRow {
  std::string side, mode, not_run;
  std::int64_t bytes = 0;
  std::vector<double> times;  // Seconds of each step.
};
struct PeerTimes {
  std::vector<PeerRow> rows;
  std::string device, version;
};

inline constexpr char kOwnSide[] = "lockstep", kPeerSide[] = "PyTorch";
// The fastest median among rows of a side whose mode `counts`; 0 if none was timed.
double fastest_median(const PeerTimes& times, const std::string& side,
                      const std::function<bool(const std::string&)>& counts);

// Rounds of a few steps of each row by turns, the next round in the opposite order. Every row has
// at least 10 steps. `budget`: seconds for each row.
PeerTimes time_beside_peer(const Scenario& scenario, const std::string& device_kind,
                           const std::string& python, double budget);

}  // namespace lockstep
