#include "engine/device/judge_kind.h"

#include <array>
#include <ostream>
#include <stdexcept>

#include "kernels/core/require.h"

namespace lockstep {
namespace {

struct Word {
  JudgeKind judge;
  std::string_view text;
};
constexpr auto kWords = std::to_array<Word>({
    {JudgeKind::none, "none"},
    {JudgeKind::activation, "activation"},
    {JudgeKind::metadata, "metadata"},
    {JudgeKind::loss, "loss"},
    {JudgeKind::gradient, "gradient"},
    {JudgeKind::norm, "norm"},
    {JudgeKind::weights, "weights"},
    {JudgeKind::evaluation, "evaluation"},
    {JudgeKind::vacuous, "vacuous"},
    {JudgeKind::counters, "counters"},
    {JudgeKind::costs, "costs"},
    {JudgeKind::documents, "documents"},
    {JudgeKind::hazard, "hazard"},
    {JudgeKind::checker, "checker"},
    {JudgeKind::schedule, "schedule"},
    {JudgeKind::capture, "capture"},
    {JudgeKind::address, "address"},
    {JudgeKind::ledger, "ledger"},
    {JudgeKind::collective, "collective"},
    {JudgeKind::contract, "contract"},
    {JudgeKind::effect, "effect"},
    {JudgeKind::oracle, "oracle"},
    {JudgeKind::refusal, "refusal"},
    {JudgeKind::expectation, "expectation"},
    {JudgeKind::remote_failure, "elsewhere"},
    {JudgeKind::watchdog, "watchdog"},
    {JudgeKind::crash, "crash"},
    {JudgeKind::device, "device"},
    {JudgeKind::memory, "memory"},
    {JudgeKind::exception, "exception"},
    {JudgeKind::state, "state"},
    {JudgeKind::disk, "disk"},
    {JudgeKind::relation, "relation"},
    {JudgeKind::rows, "rows"},
    {JudgeKind::ranks, "ranks"},
    {JudgeKind::nan, "nan"},
    {JudgeKind::failed, "failed"},
    {JudgeKind::protocol, "protocol"},
    {JudgeKind::unstable, "unstable"},
    {JudgeKind::status_1, "status 1"},
    {JudgeKind::status_2, "status 2"},
    {JudgeKind::status_3, "status 3"},
    {JudgeKind::status_4, "status 4"},
    {JudgeKind::status_5, "status 5"},
});

}  // namespace

std::string to_text(JudgeKind judge) {
  for (const Word& word : kWords) {
    if (word.judge == judge) return std::string(word.text);
  }
  require(false, "every judge has a word");
  return "";
}

JudgeKind judge_from_text(std::string_view text) {
  for (const Word& word : kWords) {
    if (word.text == text) return word.judge;
  }
  throw std::invalid_argument("there is no judge \"" + std::string(text) + "\"");
}

std::ostream& operator<<(std::ostream& out, JudgeKind judge) { return out << to_text(judge); }

}  // namespace lockstep
