#include "harness/inject/alias_injector.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

using Op = AliasOperator;
using Pass = CallPattern::Pass;
using Occurrence = CallPattern::Occurrence;

bool is_or_any(std::string_view wanted, std::string_view text) {
  return wanted.empty() || wanted == text;
}

bool is_in(Pass pass, const StepLocation& place) {
  return pass == Pass::any || (pass == Pass::any_step && place.step >= 0) ||
         (pass == Pass::any_microbatch && place.microbatch >= 0) ||
         (pass == Pass::backward && place.backward);
}

// Judges read the engine's memory, and write where nothing is defined: those calls are not the
// engine's.
bool is_of_a_judge(std::string_view part) {
  return part == "look" || part == "poison" || part == "padding";
}

// The event that the call records or waits for; -1 for other calls.
int event_of(const IssuedCall& call) {
  if (const auto* record = call.as<RecordCall>()) return record->event;
  const auto* wait = call.as<WaitCall>();
  return wait ? wait->event : -1;
}

const void* output_of(const Submission& op) {
  for (const OperandBytes& operand : op.operands()) {
    if (operand.access == Access::out) return operand.base;
  }
  return nullptr;
}

}  // namespace

void AliasInjector::created_stream(int stream, const char* name) {
  streams_[stream] = {name, device_->place.rank};
}

bool AliasInjector::matches(int stream, int event, const StepLocation& place) const {
  const CallPattern& wanted = alias_.calls;
  const auto on = streams_.find(stream);
  const auto of = events_.find(event);
  const std::string_view stream_name = on == streams_.end() ? std::string_view() : on->second.name;
  const std::string_view event_name = of == events_.end() ? std::string_view() : of->second;
  const std::string_view part = place.part;
  return is_or_any(wanted.stream, stream_name) && is_or_any(wanted.event, event_name) &&
         is_or_any(wanted.part, part) && (wanted.not_part.empty() || wanted.not_part != part) &&
         !is_of_a_judge(part) && is_in(wanted.pass, place);
}

bool AliasInjector::is_later(const IssuedCall& call) {
  switch (alias_.calls.occurrence) {
    case Occurrence::not_the_first_of_its_event:
      return !seen_events_.insert(event_of(call)).second;
    case Occurrence::not_the_first_of_its_output:
      return !seen_outputs_.insert(output_of(call.as<SubmitCall>()->op)).second;
    case Occurrence::every:
    case Occurrence::fourth_of_its_stream:
      return true;
  }
  return true;
}

bool AliasInjector::changes(const IssuedCall& call) {
  if (!matches(call.stream, event_of(call), call.place)) return false;
  const auto* submitted = call.as<SubmitCall>();
  if (submitted && !is_or_any(alias_.calls.op, submitted->op.type().name)) return false;
  return is_later(call);
}

std::vector<IssuedCall> AliasInjector::instead_of(const IssuedCall& call, bool) {
  if (alias_.op == Op::advance_record) return advanced(call);
  const bool repeats = (call.as<WaitCall>() && alias_.op == Op::repeat_wait) ||
                       (call.as<RecordCall>() && alias_.op == Op::repeat_record) ||
                       (call.as<CopyCall>() && alias_.op == Op::repeat_copy) ||
                       (call.as<SubmitCall>() && alias_.op == Op::repeat_op);
  const bool is_concerned = repeats || (call.as<WaitCall>() && alias_.op == Op::drop_wait) ||
                            (call.as<RecordCall>() && alias_.op == Op::move_record) ||
                            (call.as<SubmitCall>() && alias_.op == Op::drop_op);
  if (!is_concerned || !changes(call)) return {call};
  ++triggered_;
  if (repeats) return {call, call};
  if (alias_.op != Op::move_record) return {};
  IssuedCall moved = call;
  moved.stream = target_stream(call.stream);
  return {moved};
}

// The copies of a stream, and what comes between them, are kept back until the next record of that
// stream is known.
std::vector<IssuedCall> AliasInjector::advanced(const IssuedCall& call) {
  if (!is_or_any(alias_.calls.stream, streams_.at(call.stream).name)) return {call};
  Held& held = held_[call.stream];
  const bool is_copy = call.as<CopyCall>() != nullptr;
  if (is_copy && held.copies++ >= alias_.copies_before) held.calls.push_back(call);
  if (!call.as<RecordCall>()) {
    if (is_copy && !held.calls.empty()) return {};
    if (held.calls.empty()) return {call};
    held.calls.push_back(call);
    return {};
  }
  std::vector<IssuedCall> calls = std::exchange(held, {}).calls;
  const bool advances = !calls.empty() && matches(call.stream, event_of(call), call.place);
  triggered_ += advances;
  calls.insert(advances ? calls.begin() : calls.end(), call);
  return calls;
}

// The stream that was named so by the same rank.
int AliasInjector::target_stream(int stream) const {
  const int rank = streams_.at(stream).rank;
  const auto is_target = [&](const auto& one) {
    return one.second.name == alias_.to && one.second.rank == rank;
  };
  const auto found = std::find_if(streams_.begin(), streams_.end(), is_target);
  return found == streams_.end() ? stream : found->first;
}

int AliasInjector::launches(int stream, int, const Ledger& ledger, const StepLocation&) {
  const std::int64_t before = launches_[stream]++;
  if (alias_.op != Op::drop_launch && alias_.op != Op::repeat_launch) return 1;
  if (alias_.calls.occurrence == Occurrence::fourth_of_its_stream && before != 3) return 1;
  const auto is_op = [](const IssuedCall& call) { return call.as<SubmitCall>() != nullptr; };
  const auto first = std::find_if(ledger.entries().begin(), ledger.entries().end(), is_op);
  if (first == ledger.entries().end() || !matches(stream, -1, first->place)) return 1;
  ++triggered_;
  return alias_.op == Op::drop_launch ? 0 : 2;
}

bool AliasInjector::synchronizes(int stream, int event) {
  if (alias_.op != Op::drop_sync) return true;
  const bool drops =
      alias_.calls.event.empty() == (event < 0) && matches(stream, event, device_->place);
  triggered_ += drops;
  return !drops;
}

}  // namespace lockstep
