// One scenario on an engine that lockstep did not write: runs of it, and what is common to all
// relations between runs (docs/engine-protocol.md, section 13).
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/case/verdict.h"
#include "harness/foreign/engine_run.h"
#include "harness/foreign/engine_world.h"

namespace lockstep::foreign {

// A finding: of a relation, or of one run by itself.
struct Violated {
  JudgeKind judge = JudgeKind::relation;
  std::string reason = "";
  std::string choices = "";  // "half=odd"
  std::optional<FirstDifference> first_difference = {};
};

// Runs differed once and then no more, of an engine that does not claim to be deterministic.
struct Unstable {
  std::string reason, choices;
};

// The choices that a relation makes, such as half=odd; none given: it makes all.
class Choices {
 public:
  Choices() = default;
  // "half=odd,variant=token". Throws RequestError.
  explicit Choices(const std::string& text);
  bool takes(const std::string& name, const std::string& value) const;

 private:
  std::map<std::string, std::string> given_;
};

struct RunRequest {
  Scenario scenario;
  EngineFeed feed;
  std::string what = "the run as asked for";  // In reports.
  boost::json::object amplify = {};
  std::vector<std::int64_t> resume_at = {}, rollback_at = {};
  std::vector<std::string> observe = {};  // Kinds; none: all that the engine observes.
};

// Two tensors that must be equal, of one run or of two. -1: the whole, else the rows of a document
// by its number in the pack.
struct TensorPair {
  TensorId a, b;
  std::int64_t document_a = -1, document_b = -1;
};

struct Comparison {
  const RunRequest& a;
  const RunRequest& b;
  std::string choices = "";
  bool padding_too = true;    // Rows of no document, where the engine defines them.
  bool equal_runs = false;    // R1: the requests are the same.
  bool a_is_doubled = false;  // b's values must be twice those of a's dump.
};

// How far a relation with a tolerance went: of the tensor that came nearest to what is allowed.
struct Margin {
  double used = 0;     // A part of what is allowed.
  double allowed = 0;  // A part of the tensor's length.
  std::string tensor = {};
};

// F32, BF16 and F64 as fp32; nothing of other types.
std::vector<float> as_floats(const wire::TypedTensor& tensor);

// A case starts fresh processes of the engine, to compare with them, before it reports a
// difference between runs, or in R1 too.
enum class FreshProcesses { never, before_a_difference, always };

class EngineCase {
 public:
  // `world` and the scenario's ranks agree; `command` makes fresh processes of the same engine.
  EngineCase(EngineWorld& world, const std::string& command, const Scenario& scenario,
             double deadline_s, FreshProcesses fresh);
  EngineCase(const EngineCase&) = delete;
  EngineCase& operator=(const EngineCase&) = delete;
  ~EngineCase();

  const Scenario& scenario() const { return asked_.scenario; }
  const EngineFeed& feed() const { return asked_.feed; }
  // `expect.counters` of a scenario that was not projected.
  const decltype(Scenario::Expect::counters)& expected_counters() const { return expected_; }
  const Hello& hello() const { return world_.hello(); }
  std::int64_t ranks() const { return world_.ranks(); }
  // Whether the engine counts it, as `seen` or as `said`.
  bool counts(const std::string& counter) const { return hello().counts.contains(counter); }
  bool honours(const std::string& key) const;
  bool repeats_in_fresh_processes() const { return fresh_ == FreshProcesses::always; }

  const RunRequest& asked() const { return asked_; }
  RunRequest asked_with(EngineFeed feed) const;
  RunRequest asked_with(const std::function<void(Scenario&)>& change, std::string what) const;

  // Throw Violated where a run by itself is wrong, RunFailed, Skipped, EngineFailure.
  EngineRun run(const RunRequest& request);
  const EngineRun& base();  // The run of asked(), made once. A NaN in it is Violated.
  EngineRun run_in_fresh_processes(const RunRequest& request);
  bool has_base() const { return base_.has_value(); }
  const std::vector<std::map<std::string, std::int64_t>>& base_counters() const {
    return base_->counters;
  }

  // All tensors of both, or those of these kinds.
  static std::vector<TensorPair> pairs_of(const EngineRun& a, const EngineRun& b,
                                          const std::set<std::string>& kinds = {});
  // Throws Violated where a pair differs and differs again, Unstable where it does not.
  void expect_equal(const Comparison& comparison, const EngineRun& a, const EngineRun& b,
                    const std::vector<TensorPair>& pairs);
  // The pairs that differ.
  std::vector<TensorPair> differing(const EngineRun& a, const EngineRun& b,
                                    const std::vector<TensorPair>& pairs, bool padding_too) const;
  // From here on no relation looks at it.
  void leave_out(const TensorId& id) { unstable_.insert(id); }
  const std::set<TensorId>& left_out() const { return unstable_; }
  bool is_left_out(const TensorId& id) const;  // Also where the engine calls it unstable.
  // The values of these tensors, from one more run.
  struct Dump {
    EngineRun run;
    std::map<TensorId, wire::TypedTensor> tensors;
  };
  Dump dump(const RunRequest& request, const std::vector<TensorId>& ids);
  // The same with all values doubled. Floats of other types than F32 and BF16 are left out.
  Dump doubled_dump(const RunRequest& request, const std::vector<TensorId>& ids);
  // The relation that is being judged tells of its tolerance, and who reports it takes that away.
  void tell_margin(const Margin& margin) { margin_ = margin; }
  std::optional<Margin> take_margin() { return std::exchange(margin_, {}); }
  // Requests of runs so far.
  std::int64_t runs() const { return runs_; }

 private:
  EngineRun run_in(EngineWorld& world, const RunRequest& request);
  std::vector<boost::json::object> ask(EngineWorld& world, const char* op,
                                       const RunRequest& request, boost::json::object more);
  FirstDifference first_difference(const Comparison& comparison, const TensorPair& pair,
                                   const Dump& a, const Dump& b) const;
  // How many of a few more pairs of runs differ again, up to the first that does.
  struct Repeated {
    bool differs = false;
    int pairs = 0;
    std::vector<TensorPair> differing;
    Dump a, b;
  };
  Repeated repeat(const Comparison& comparison, const std::vector<TensorPair>& pairs);
  void require_stable_over_processes(const Comparison& comparison, const EngineRun& a,
                                     const std::vector<TensorPair>& pairs);
  [[noreturn]] void report_not_repeated(const Comparison& comparison, const std::string& differ,
                                        int pairs) const;

  EngineWorld& world_;
  const std::string& command_;
  RunRequest asked_;
  decltype(Scenario::Expect::counters) expected_;
  double deadline_s_;
  FreshProcesses fresh_;
  std::optional<EngineRun> base_;
  std::set<TensorId> unstable_;
  std::string name_;  // Names the files of this case in the folder of each world.
  std::int64_t runs_ = 0;
  std::optional<Margin> margin_;
};

}  // namespace lockstep::foreign
