// Finds the first op of a run that wrote something else than the same op of the oracle: what each
// op wrote is compared when it has run on the simulated device. Gradients of activations can be
// seen only then, since their memory is soon used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/device/step_location.h"
#include "harness/case/verdict.h"
#include "kernels/submission/submission.h"
#include "oracle/oracle.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

class OpWatch {
 public:
  // `mutation` is that of the oracle. The referenced objects outlive the watch.
  OpWatch(const Scenario& scenario, const DataSource& data, const std::string& mutation);

  // A run begins, of this many ranks, with memory of its own.
  void begin(std::int64_t ranks);
  // `op` has just run.
  void ran(const Submission& op, const StepLocation& place);
  void copied(void* to, const void* from, std::size_t bytes);
  // The ops that wrote what an op at `reader` finds in the operand, also if copies brought it
  // there: "conv_backward, scan_backward of layer 1". "" where none did.
  std::string writers(const OperandBytes& operand, const StepLocation& reader) const;
  const std::optional<WrongOp>& first() const { return first_; }
  // The first op in the last step's passes that ran less often than the oracle's of its layer and
  // name, although a later one of its pass did run, and an op of its name did somewhere. It has no
  // operand, and its one input is the graph whose ops are missing together, if they are: "graph" of
  // "backward graph of region 0".
  std::optional<WrongOp> left_out() const;
  // What was compared so far: "conv_backward.dx".
  const std::set<std::string>& compared() const { return compared_; }

 private:
  // An op's place in a pass: microbatch of the step (of all ranks), layer, "conv_backward.dx".
  using Key = std::tuple<std::int64_t, int, std::string>;
  struct Write {
    OperandBytes to;
    std::string op;  // "" for a copy.
    StepLocation place;
    std::size_t hash;                                  // A hash of the bytes that were written.
    std::vector<std::shared_ptr<const Write>> copied;  // The writes of what a copy read.
  };

  std::int64_t runs(std::int64_t microbatch, const oracle::Tensor& written) const;
  std::string missing_graph(std::int64_t microbatch, const oracle::Tensor& written) const;
  void expect_step(std::int64_t step);
  void expect(const oracle::StepResult& want);
  // True where one of the values that the oracle's ops of this name wrote there is what the operand
  // holds, or where there are none. An op that runs again, or in an evaluation, is equal to another
  // of them.
  bool is_expected(const Key& key, const OperandBytes& operand);
  void begin_sum(const OperandBytes& operand);
  // The same of an accumulator: one of the values is what the op has added to it.
  bool is_sum(const Key& key, const Submission& op, const OperandBytes& operand);
  using Writes = std::vector<std::shared_ptr<const Write>>;
  Writes last_writes(const OperandBytes& operand) const;
  void keep(Write write);
  std::string text_of(const Write& write, const StepLocation& reader) const;

  const Scenario& scenario_;
  const DataSource& data_;
  oracle::Oracle oracle_;
  std::int64_t ranks_, step_ = -1;
  std::vector<oracle::StepResult> results_;  // The step's and its evaluation's.
  std::map<Key, std::vector<const oracle::Tensor*>> expected_;
  std::set<std::string> compared_;
  // How often in the step, by the op's name alone.
  std::map<Key, std::int64_t> ran_;
  std::set<std::string> ever_ran_;  // Names of ops: an engine does without some of the oracle's.
  Writes writes_;                   // In the order of time, without those that a later one covers.
  std::map<const std::byte*, std::vector<float>>
      sums_;  // What gradients held when an op wrote them.
  std::optional<WrongOp> first_;
};

}  // namespace lockstep
