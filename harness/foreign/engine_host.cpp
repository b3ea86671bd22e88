#include "harness/foreign/engine_host.h"

#include <algorithm>
#include <stdexcept>

#include "harness/base/errors.h"
#include "harness/base/stopwatch.h"
#include "harness/foreign/engine_case.h"
#include "harness/foreign/engine_failure.h"
#include "scenarios/io/reader.h"
#include "scenarios/schema/words.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

constexpr double kCheckSeconds = 10;
constexpr int kMostExitsInARow = 3;
constexpr std::int64_t kFreshEvery = 50;  // Cases, whose first run is made in fresh processes too.

std::vector<std::string> texts(const json::object& reply, const char* name) {
  std::vector<std::string> list;
  const json::value* const value = reply.if_contains(name);
  if (value == nullptr || !value->is_array()) return list;
  for (const json::value& item : value->as_array()) {
    if (item.is_string()) list.emplace_back(item.as_string());
  }
  return list;
}

// "key: why; key: why" of a check's refusal; "" where the engine can run it.
std::string refusal_in(const json::object& reply) {
  const json::value* const refused = reply.if_contains("refused");
  if (refused == nullptr) {
    if (reply.contains("failed"))
      throw EngineFailure(JudgeKind::protocol,
                          "check failed: " + shown(json::serialize(reply).substr(0, 200)));
    return "";
  }
  std::string why;
  if (refused->is_array()) {
    for (const json::value& item : refused->as_array()) {
      const json::object* const one = item.if_object();
      if (one == nullptr || !one->contains("key") || !one->contains("why")) continue;
      const auto text = [&](const char* field) {
        const json::value& value = one->at(field);
        return value.is_string() ? shown(std::string(value.as_string())) : json::serialize(value);
      };
      why += (why.empty() ? "" : "; ") + text("key") + ": " + text("why");
    }
  }
  return why.empty() ? "refused without a reason" : why;
}

}  // namespace

// One projected scenario, in one world.
class EngineHost::Case {
 public:
  Case(EngineHost& host, EngineResult& result) : host_(host), result_(result) {}

  // Throws EngineFailure and Interrupted.
  void run() {
    const Scenario& scenario = result_.scenario;
    EngineWorld& world = host_.world(static_cast<int>(scenario.parallel.data));
    if (!check(world)) return;
    agreed_ = true;
    EngineCase one(world, host_.options_.command, scenario, host_.options_.deadline_s,
                   host_.fresh_processes());
    try {
      for (const AskedRelation& asked : asked_relations()) {
        relation_ = asked.relation;
        if (!judge(one, asked)) break;
      }
    } catch (...) {
      finish(one);
      throw;
    }
    finish(one);
  }

  // Whether the engine has agreed to run it.
  bool is_agreed() const { return agreed_; }
  // Where a failure of the engine ended it.
  void broken(const EngineFailure& failure) {
    const bool ranks = failure.judge == JudgeKind::ranks;
    note(ranks ? Verdict::violated : Verdict::broken, failure.judge, failure.what());
  }

 private:
  std::vector<AskedRelation> asked_relations() const {
    std::vector<AskedRelation> list = host_.options_.relations;
    const Relation& first = relations().front();
    if (list.empty()) {
      for (const Relation& one : relations()) list.push_back({&one});
    } else if (list.front().relation != &first && !host_.hello_.deterministic) {
      list.insert(list.begin(), {&first});  // It says which tensors the others leave out.
    }
    return list;
  }

  // False where the engine refuses the scenario.
  bool check(EngineWorld& world) {
    const json::value scenario = json::parse(canonical_form(result_.scenario));
    try {
      for (const json::object& reply :
           world.ask({{"op", "check"}, {"scenario", scenario}}, kCheckSeconds)) {
        const std::string why = refusal_in(reply);
        if (!why.empty()) throw Skipped("refused: " + why);
        result_.without_effect = texts(reply, "without_effect");
      }
    } catch (const Skipped& reason) {
      result_.result.verdict = Verdict::skipped;
      result_.result.reason = reason.what();
      return false;
    }
    return true;
  }

  // False where no other relation is worth asking.
  bool judge(EngineCase& one, const AskedRelation& asked) {
    const std::string why_not = asked.relation->why_not(one);
    if (!why_not.empty()) return note(Verdict::skipped, JudgeKind::none, why_not);
    try {
      asked.relation->judge(one, asked.choices);
      note(Verdict::holds, JudgeKind::none, "");
      result_.relations.back().margin = one.take_margin();
      return true;
    } catch (const NotApplicable& reason) {
      return note(Verdict::skipped, JudgeKind::none, reason.what());
    } catch (const Skipped& reason) {
      if (!one.has_base()) {
        result_.result.verdict = Verdict::skipped;
        result_.result.reason = shown(reason.what());
        return false;
      }
      return note(Verdict::skipped, JudgeKind::none,
                  std::string("a run of it was skipped: ") + shown(reason.what()));
    } catch (const Unstable& unstable) {
      note(Verdict::gave_up, JudgeKind::unstable, unstable.reason, unstable.choices);
      return relation_ != &relations().front();
    } catch (const Violated& violated) {
      note(Verdict::violated, violated.judge, violated.reason, violated.choices,
           violated.first_difference);
      return violated.judge != JudgeKind::rows && violated.judge != JudgeKind::nan && goes_on();
    } catch (const RunFailed& failed) {
      const bool memory = failed.word == "memory";
      note(memory ? Verdict::gave_up : Verdict::violated,
           memory ? JudgeKind::memory : JudgeKind::failed, "a run failed: " + shown(failed.what()));
      return false;
    }
  }
  // False after the first violation where no other relation is asked. R1 gates the others.
  bool goes_on() const {
    if (relation_ == &relations().front()) return false;
    const HostOptions& options = host_.options_;
    return !options.stop_at_first ||
           (options.is_known && options.is_known(result_.scenario, result_.relations.back()));
  }

  // Returns true.
  bool note(Verdict verdict, JudgeKind judge, const std::string& reason,
            const std::string& choices = "",
            const std::optional<FirstDifference>& difference = {}) {
    RelationOutcome outcome{.id = relation_ == nullptr ? "" : relation_->id,
                            .name = relation_ == nullptr ? "" : relation_->name,
                            .verdict = verdict,
                            .judge = judge,
                            .reason = reason,
                            .choices = choices,
                            .first_difference = difference};
    result_.relations.push_back(std::move(outcome));
    return true;
  }

  void finish(const EngineCase& one) {
    result_.runs = one.runs();
    if (one.has_base()) result_.counters = one.base_counters();
    for (const TensorId& id : one.left_out()) result_.left_out.push_back(id.text());
  }

  EngineHost& host_;
  EngineResult& result_;
  const Relation* relation_ = nullptr;  // None before the first run.
  bool agreed_ = false;
};

EngineWorld& EngineHost::world(int ranks) {
  if (world_ && world_->ranks() != ranks) {
    world_->close();
    world_.reset();
  }
  if (world_ && !world_->is_usable()) {
    note_exit_between_requests(
        {JudgeKind::crash, "the engine ended between two cases", EngineFailure::When::between});
    end_world();
  }
  if (!world_) world_ = std::make_unique<EngineWorld>(options_.command, ranks);
  if (!has_hello_) hello_ = world_->hello();
  has_hello_ = true;
  return *world_;
}

FreshProcesses EngineHost::fresh_processes() const {
  if (fresh_) return *fresh_;
  return cases_ % kFreshEvery == 1 ? FreshProcesses::always : FreshProcesses::before_a_difference;
}

const Hello& EngineHost::hello() {
  if (!has_hello_) world(1);
  return hello_;
}

void EngineHost::note_exit_between_requests(const EngineFailure& failure) {
  if (++exits_in_a_row_ < kMostExitsInARow) return;
  throw WorldError(
      std::string("--engine: the engine ended three times in a row when nothing was asked: ") +
      failure.what());
}

void EngineHost::end_world() { world_.reset(); }

EngineResult EngineHost::judge(const Scenario& scenario) {
  const Stopwatch watch;
  ++cases_;
  EngineResult result;
  CaseResult& whole = result.result;
  whole.name = scenario.name;
  whole.numerics = to_text(scenario.numerics.front());
  Projection projection = project(scenario, hello().honours);
  const auto device_text = [&](const char* key) {
    const auto found = hello_.device.find(key);
    return found == hello_.device.end() ? std::string() : shown(found->second);
  };
  whole.device.kind = device_text("kind");
  whole.device.name = device_text("name");
  if (!projection.scenario) {
    whole.verdict = Verdict::skipped;
    whole.reason = projection.why_not;
    return result;
  }
  result.scenario = std::move(*projection.scenario);
  result.projected = std::move(projection.changes);
  whole.numerics = to_text(result.scenario.numerics.front());
  whole.token = make_token(result.scenario);
  if (!scenario.folder.empty()) whole.data_from = scenario.folder;
  const EngineResult begun = result;
  std::string stray;  // What the engine said before this case, when nothing was asked.
  for (bool again = false;; again = true) {
    Case one(*this, result);
    try {
      one.run();
      exits_in_a_row_ = 0;
      break;
    } catch (const EngineFailure& failure) {
      end_world();
      // An engine that dies of being asked whether it can run a case may have been dying before.
      const bool early = failure.judge == JudgeKind::crash && !one.is_agreed() && !again;
      const bool between = failure.when == EngineFailure::When::between || early;
      const bool stray_bytes = between && failure.judge == JudgeKind::protocol;
      if (between && !stray_bytes) note_exit_between_requests(failure);
      if (!between || (stray_bytes && again)) {
        one.broken(failure);
        break;
      }
      if (stray_bytes) stray = failure.what();
      result = begun;
    }
  }
  if (!stray.empty())
    result.relations.push_back(
        {.verdict = Verdict::broken, .judge = JudgeKind::protocol, .reason = stray});
  clear(result);
  settle(result, options_.command);
  whole.seconds = watch.seconds();
  return result;
}

std::vector<std::string> EngineHost::why_not(const Scenario& scenario) {
  const EngineCase one(world(static_cast<int>(scenario.parallel.data)), options_.command, scenario,
                       options_.deadline_s, FreshProcesses::never);
  std::vector<std::string> lines;
  for (const Relation& relation : relations()) {
    const std::string why = relation.why_not(one);
    lines.push_back(std::string(relation.id) + " " + relation.name + ": " +
                    (why.empty()
                         ? "applies (" + std::string(relation.equal) + "; " + relation.promise + ")"
                         : "not applicable, " + why));
  }
  return lines;
}

void EngineHost::clear(EngineResult& result) {
  if (!world_) return;
  try {
    if (!world_->is_usable()) return end_world();
    if (world_->reset()) return;
    world_->close();
  } catch (const EngineFailure& failure) {
    const bool between = failure.when == EngineFailure::When::between;
    if (between && failure.judge == JudgeKind::crash) note_exit_between_requests(failure);
    if (!between)
      result.relations.push_back({.verdict = Verdict::broken,
                                  .judge = failure.judge,
                                  .reason = std::string("reset: ") + failure.what()});
  }
  end_world();
}

void EngineHost::close() {
  if (world_) world_->close();
  world_.reset();
}

}  // namespace lockstep::foreign
