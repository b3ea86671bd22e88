// One eager step of a scenario, with the ops that it had: each can run again on the operands that
// it had, which are still on the device.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/device/device.h"
#include "engine/train/trainer.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct RecordedOp {
  Submission op;
  int microbatch;
  int times;  // How often an op of this signature came.
};

// Keeps the last op of each signature.
class OpRecorder : public Observer {
 public:
  void on_call(const IssuedCall& issued) override;
  bool recording = false;
  std::map<std::string, RecordedOp> ops;  // By signature.
};

class RecordedStep {
 public:
  RecordedStep(const Scenario& scenario, const std::string& device_kind);
  const std::map<std::string, RecordedOp>& ops() const { return recorder_.ops; }
  Device& device() { return device_; }
  Backend& backend() { return device_.backend(); }
  const Microbatch& microbatch(int number) const;

 private:
  std::unique_ptr<DataSource> data_;
  OpRecorder recorder_;
  Device device_;
  Trainer trainer_;
  StepData step_;
};

}  // namespace lockstep
