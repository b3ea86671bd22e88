#include "harness/bench/dispatch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/device/ledger.h"
#include "engine/device/observer.h"
#include "harness/base/errors.h"
#include "harness/generate/case.h"
#include "harness/judge/runner.h"
#include "harness/report/report.h"
#include "harness/run/run_case.h"

namespace lockstep {
namespace {

enum Call : std::uint8_t {
  allocations,
  pinned_allocations,
  streams,
  ops,
  fills,
  copies,
  records,
  waits,
  captures,
  captured,
  launches,
  host_waits,
  delays,
  calls
};
constexpr std::array<const char*, calls> kNames = {
    "allocations", "pinned allocations", "streams",  "ops",      "fills",      "copies", "records",
    "waits",       "captures",           "captured", "launches", "host waits", "delays"};

class DispatchCounter : public Observer {
 public:
  void on_call(const IssuedCall& issued) override {
    std::visit(Overloaded{
                   [&](const CreateStreamCall&) { ++count[streams]; },
                   [&](const SubmitCall&) { ++count[ops]; },
                   [&](const CopyCall&) { ++count[copies]; },
                   [&](const FillCall&) { ++count[fills]; },
                   [&](const RecordCall&) { ++count[records]; },
                   [&](const WaitCall&) { ++count[waits]; },
                   [&](const EndCaptureCall& end) {
                     ++count[captures];
                     count[captured] += std::ssize(end.captured->entries());
                   },
                   [&](const LaunchCall&) { ++count[launches]; },
                   [&](const SyncCall&) { ++count[host_waits]; },
                   [&](const AllocateCall& call) {
                     ++count[call.pinned ? pinned_allocations : allocations];
                   },
                   [](const auto&) {},
               },
               issued.call);
  }

  std::array<std::int64_t, calls> count{};
};

}  // namespace

std::vector<DispatchCount> count_dispatch(std::uint64_t campaign_seed, std::int64_t cases) {
  std::array<std::vector<std::int64_t>, calls> seen;
  for (std::int64_t index = 0; index < cases; ++index) {
    CampaignCase one = make_case(campaign_seed, index, "small");
    if (one.invalid) continue;  // Refused before a device is opened.
    one.scenario.checker.schedule.count = 1;
    DispatchCounter counter;
    RunOptions options;
    options.watcher = &counter;
    const CaseResult result = run_case(one.scenario, options);
    if (result.verdict != Verdict::holds) throw WorldError("bench: " + failure_block(result));
    counter.count[delays] = result.counters.at(Counter::delays_applied);
    for (std::size_t call = 0; call < calls; ++call) seen[call].push_back(counter.count[call]);
  }
  std::vector<DispatchCount> table;
  for (std::size_t call = 0; call < calls; ++call) {
    std::vector<std::int64_t>& counts = seen[call];
    if (counts.empty()) throw RequestError("bench: none of these cases is legal");
    std::sort(counts.begin(), counts.end());
    table.push_back(
        {kNames[call], counts[counts.size() / 2], counts[counts.size() * 95 / 100], counts.back()});
  }
  return table;
}

}  // namespace lockstep
