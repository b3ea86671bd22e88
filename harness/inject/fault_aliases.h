// Faults of the engine that equal an operator at the device, such as a wait that is left out or an
// op that runs twice, and so have no line in the engine. An alias names the calls that its operator
// changes; `AliasInjector` changes them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

enum class AliasOperator : std::uint8_t {
  drop_wait,
  drop_sync,  // The host does not wait for a stream or an event.
  drop_op,
  repeat_op,
  repeat_copy,
  repeat_record,
  repeat_wait,
  drop_launch,
  repeat_launch,
  move_record,     // The event is recorded on the stream `to` of the same rank.
  advance_record,  // The event is recorded before the copies that it follows, or after the first.
};

// Which calls an alias changes. A text that is empty, or a choice that is `any`, holds for every
// call.
struct CallPattern {
  enum class Occurrence : std::uint8_t {
    every,
    not_the_first_of_its_event,
    not_the_first_of_its_output,  // Ops: by the address of the first operand that is written.
    fourth_of_its_stream,
  };
  enum class Pass : std::uint8_t { any, any_step, any_microbatch, backward };
  std::string_view stream = {};
  std::string_view event = {};  // The name that the engine gave the event.
  std::string_view op = {};
  std::string_view part = {};      // As in `Place::part`.
  std::string_view not_part = {};  // Any other part.
  Pass pass = Pass::any;
  Occurrence occurrence = Occurrence::every;
};

struct FaultAlias {
  std::string_view name;
  AliasOperator op;
  CallPattern calls;
  std::string_view to = {};  // Operator `move_record`.
  int copies_before = 0;     // Operator `advance_record`: how many copies stay before the record.
};

std::span<const FaultAlias> fault_aliases();
// Null for a name that is none.
const FaultAlias* fault_alias(std::string_view name);

}  // namespace lockstep
