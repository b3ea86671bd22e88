#include "harness/campaign/record.h"

#include <algorithm>
#include <set>

#include "harness/campaign/corpus.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"

namespace lockstep {
namespace {

namespace json = boost::json;

bool is_infrastructure(const CaseResult& result) {
  using enum JudgeKind;
  static const std::set<JudgeKind> judges{device, exception, memory, disk};
  return result.verdict == Verdict::broken && judges.contains(result.judge);
}

bool same_failure(const CaseResult& a, const CaseResult& b) {
  return a.verdict == b.verdict && a.judge == b.judge && a.first_difference == b.first_difference &&
         class_of(a) == class_of(b);
}

std::string text_or(const json::object& object, const char* key) {
  return object.contains(key) && object.at(key).is_string()
             ? json::value_to<std::string>(object.at(key))
             : "";
}

}  // namespace

void classify(CaseRecord& record, const std::vector<FurtherRun>& further) {
  std::set<std::string> digests;
  bool all_the_same = true;
  for (const FurtherRun& run : further) {
    record.failed += fails(run.result);
    all_the_same = all_the_same && same_failure(run.result, record.result);
    if (!run.oracle.empty()) digests.insert(run.oracle);
  }
  record.runs = static_cast<int>(further.size());
  record.failure_class = class_of(record.result);
  if (digests.size() > 1) {
    record.kind = "oracle unstable";
    record.result.verdict = Verdict::gave_up;
    record.result.reason = "the oracle gave " + std::to_string(digests.size()) + " results in " +
                           std::to_string(record.runs) + " runs; seen as " +
                           to_text(record.result.judge) + ": " + record.result.reason;
    record.result.judge = JudgeKind::oracle;
    record.failure_class = "oracle / unstable";
  } else if (is_infrastructure(record.result)) {
    record.kind = "infrastructure";
  } else if (further.empty()) {
    record.kind = "not run again";
  } else {
    record.kind = all_the_same ? "deterministic" : "racy";
  }
}

json::object to_json(const TimesByKind& times) {
  json::object object;
  for (const auto& [kind, time] : times)
    object[kind] = {{"seconds", time.seconds}, {"calls", time.calls}};
  return object;
}

TimesByKind times_from_json(const json::object& object) {
  TimesByKind times;
  for (const auto& [kind, time] : object) {
    times[kind] = {time.at("seconds").to_number<double>(),
                   time.at("calls").to_number<std::int64_t>()};
  }
  return times;
}

json::object to_json(const CaseRecord& record) {
  json::object line{{"case", record.index < 0 ? json::value(nullptr) : json::value(record.index)}};
  if (record.index < 0) line["corpus"] = record.corpus_file;
  // Text: it does not fit the doubles of other readers.
  line["case_seed"] = std::to_string(record.seed);
  for (auto& [key, value] : to_json(record.result)) {
    if (key != "device") line[key] = value;
  }
  if (!record.rule.empty()) line["near_legal"] = record.rule;
  if (record.traits.any()) line["traits"] = to_hex(record.traits);
  if (!record.kind.empty()) {
    line["failure"] = {{"class", record.failure_class},
                       {"kind", record.kind},
                       {"failed", record.failed},
                       {"runs", record.runs},
                       {"file", record.file}};
  }
  return line;
}

CaseRecord record_from_json(const json::value& value) {
  json::object line = value.as_object();
  CaseRecord record;
  if (!line.at("case").is_null()) record.index = line.at("case").to_number<std::int64_t>();
  record.corpus_file = text_or(line, "corpus");
  record.seed = std::stoull(text_or(line, "case_seed"));
  line["device"] = to_json(DeviceInfo{});
  record.result = result_from_json(line);
  record.rule = text_or(line, "near_legal");
  record.traits = traits_from_hex(text_or(line, "traits"));
  if (!line.contains("failure")) return record;
  const json::object& failure = line.at("failure").as_object();
  record.failure_class = text_or(failure, "class");
  record.kind = text_or(failure, "kind");
  record.failed = failure.at("failed").to_number<int>();
  record.runs = failure.at("runs").to_number<int>();
  record.file = text_or(failure, "file");
  return record;
}

}  // namespace lockstep
