#include "harness/report/result_json.h"

#include <algorithm>

#include "harness/base/version.h"
#include "harness/case/counters_json.h"

namespace lockstep {
namespace {

namespace json = boost::json;

json::value number_or_null(std::int64_t value) {
  return value < 0 ? json::value(nullptr) : json::value(value);
}
std::int64_t number_or_minus_one(const json::value& value) {
  return value.is_null() ? -1 : value.to_number<std::int64_t>();
}

std::string text_of(const json::object& object, const char* key) {
  return json::value_to<std::string>(object.at(key));
}

Verdict verdict_from(const std::string& text) {
  for (const Verdict verdict :
       {Verdict::holds, Verdict::violated, Verdict::gave_up, Verdict::skipped}) {
    if (text == to_text(verdict)) return verdict;
  }
  return Verdict::broken;
}

DeviceInfo device_from_json(const json::object& object) {
  DeviceInfo device;
  device.kind = text_of(object, "kind");
  device.name = text_of(object, "name");
  device.driver = text_of(object, "driver");
  device.cuda = text_of(object, "cuda");
  device.nccl = text_of(object, "nccl");
  device.cudnn = text_of(object, "cudnn");
  device.cublas = text_of(object, "cublas");
  if (object.contains("cudnn_frontend")) device.cudnn_frontend = text_of(object, "cudnn_frontend");
  if (object.contains("nvtx")) device.nvtx = text_of(object, "nvtx");
  if (object.contains("copy_engines_off"))
    device.copy_engines_off = text_of(object, "copy_engines_off");
  device.compute_capability = object.at("compute_capability").to_number<int>();
  return device;
}

FirstDifference difference_from_json(const json::object& object) {
  FirstDifference where;
  where.step = number_or_minus_one(object.at("step"));
  where.rank = number_or_minus_one(object.at("rank"));
  where.microbatch = number_or_minus_one(object.at("microbatch"));
  where.layer = number_or_minus_one(object.at("layer"));
  where.op = text_of(object, "op");
  where.tensor = text_of(object, "tensor");
  where.index = number_or_minus_one(object.at("index"));
  where.row = number_or_minus_one(object.at("row"));
  where.column = number_or_minus_one(object.at("column"));
  where.document = number_or_minus_one(object.at("document"));
  where.position = number_or_minus_one(object.at("position"));
  where.got = text_of(object, "got");
  where.want = text_of(object, "want");
  if (!object.at("ulp").is_null()) where.ulp = object.at("ulp").to_number<std::int64_t>();
  where.bf16 = object.contains("stored") && text_of(object, "stored") == "bf16";
  if (const json::value* stored = object.if_contains("stored_ulp"); stored && !stored->is_null())
    where.stored_ulp = stored->to_number<std::int64_t>();
  if (object.contains("got_from")) where.got_from = text_of(object, "got_from");
  if (object.contains("want_from")) where.want_from = text_of(object, "want_from");
  return where;
}

WrongOp wrong_op_from_json(const json::object& object) {
  const auto number = [&](const char* key) { return object.at(key).to_number<std::int64_t>(); };
  WrongOp wrong{.step = number("step"),
                .rank = number("rank"),
                .microbatch = number("microbatch"),
                .layer = number_or_minus_one(object.at("layer")),
                .backward = object.at("backward").as_bool(),
                .op = text_of(object, "op"),
                .operand = text_of(object, "operand"),
                .inputs = {}};
  for (const json::value& input : object.at("inputs").as_array()) {
    wrong.inputs.push_back(
        {text_of(input.as_object(), "operand"), text_of(input.as_object(), "writers")});
  }
  return wrong;
}

HazardSide side_from_json(const json::object& object) {
  const auto number = [&](const char* key) { return object.at(key).to_number<std::int64_t>(); };
  return {.stream = text_of(object, "stream"),
          .work = text_of(object, "work"),
          .place = text_of(object, "place"),
          .replay = text_of(object, "replay"),
          .operand = text_of(object, "operand"),
          .access = text_of(object, "access"),
          .rank = number("rank"),
          .first = number("first"),
          .rows = number("rows"),
          .width = number("width"),
          .pitch = number("pitch")};
}

HazardRecord hazard_from_json(const json::object& object) {
  HazardRecord one{.kind = text_of(object, "kind"),
                   .later = side_from_json(object.at("later").as_object()),
                   .earlier = std::nullopt,
                   .allocation = number_or_minus_one(object.at("allocation")),
                   .allocation_bytes = object.at("allocation_bytes").to_number<std::int64_t>(),
                   .pinned = object.at("pinned").as_bool(),
                   .event = number_or_minus_one(object.at("event")),
                   .text = text_of(object, "text")};
  if (const json::object* earlier = object.at("earlier").if_object())
    one.earlier = side_from_json(*earlier);
  return one;
}

json::object side_to_json(const HazardSide& side) {
  return {{"stream", side.stream}, {"work", side.work},       {"place", side.place},
          {"replay", side.replay}, {"operand", side.operand}, {"access", side.access},
          {"rank", side.rank},     {"first", side.first},     {"rows", side.rows},
          {"width", side.width},   {"pitch", side.pitch}};
}

}  // namespace

json::object to_json(const HazardRecord& one) {
  return {{"kind", one.kind},
          {"later", side_to_json(one.later)},
          {"earlier", one.earlier ? json::value(side_to_json(*one.earlier)) : json::value(nullptr)},
          {"allocation", number_or_null(one.allocation)},
          {"allocation_bytes", one.allocation_bytes},
          {"pinned", one.pinned},
          {"event", number_or_null(one.event)},
          {"text", one.text}};
}

json::object to_json(const DeviceInfo& device) {
  return {{"kind", device.kind},
          {"name", device.name},
          {"driver", device.driver},
          {"cuda", device.cuda},
          {"nccl", device.nccl},
          {"cudnn", device.cudnn},
          {"cublas", device.cublas},
          {"cudnn_frontend", device.cudnn_frontend},
          {"nvtx", device.nvtx},
          {"copy_engines_off", device.copy_engines_off},
          {"compute_capability", device.compute_capability}};
}

json::object to_json(const FirstDifference& where) {
  json::object object{
      {"step", number_or_null(where.step)},
      {"rank", number_or_null(where.rank)},
      {"microbatch", number_or_null(where.microbatch)},
      {"layer", number_or_null(where.layer)},
      {"op", where.op},
      {"tensor", where.tensor},
      {"index", number_or_null(where.index)},
      {"row", number_or_null(where.row)},
      {"column", number_or_null(where.column)},
      {"document", number_or_null(where.document)},
      {"position", number_or_null(where.position)},
      {"got", where.got},
      {"want", where.want},
      {"ulp", where.ulp ? json::value(*where.ulp) : json::value(nullptr)},
      {"stored", where.bf16 ? "bf16" : "fp32"},
      {"stored_ulp", where.stored_ulp ? json::value(*where.stored_ulp) : json::value(nullptr)}};
  if (!where.got_from.empty()) object["got_from"] = where.got_from;
  if (!where.want_from.empty()) object["want_from"] = where.want_from;
  return object;
}

json::object to_json(const WrongOp& wrong) {
  json::array inputs;
  for (const WrongOp::Input& input : wrong.inputs)
    inputs.push_back({{"operand", input.operand}, {"writers", input.writers}});
  return {{"step", wrong.step},
          {"rank", wrong.rank},
          {"microbatch", wrong.microbatch},
          {"layer", number_or_null(wrong.layer)},
          {"backward", wrong.backward},
          {"op", wrong.op},
          {"operand", wrong.operand},
          {"inputs", std::move(inputs)}};
}

json::object to_json(const CaseResult& result) {
  const json::object counters = to_json(result.counters);
  const json::value difference = result.first_difference
                                     ? json::value(to_json(*result.first_difference))
                                     : json::value(nullptr);
  json::object object{{"name", result.name},
                      {"numerics", result.numerics},
                      {"token", result.token},
                      {"verdict", to_text(result.verdict)},
                      {"judge", to_text(result.judge)},
                      {"reason", result.reason},
                      {"first_difference", difference},
                      {"counters", counters},
                      {"seconds", result.seconds},
                      {"replay", result.replay},
                      {"device", to_json(result.device)}};
  if (result.wrong_op) object["wrong_op"] = to_json(*result.wrong_op);
  if (!result.hazards.empty()) {
    json::array& list = object["hazards"].emplace_array();
    for (const HazardRecord& one : result.hazards) list.push_back(to_json(one));
  }
  if (!result.costs.empty()) object["costs"] = json::value_from(result.costs);
  if (!result.file.empty()) object["file"] = result.file;
  if (!result.data_from.empty()) object["data_from"] = result.data_from;
  if (!result.schedules.empty()) object["schedules"] = result.schedules;
  if (!result.blind.empty()) object["blind"] = json::value_from(result.blind);
  if (!result.redundant_edges.empty())
    object["redundant_edges"] = json::value_from(result.redundant_edges);
  return object;
}

CaseResult result_from_json(const json::value& value) {
  const json::object& object = value.as_object();
  CaseResult result;
  result.name = text_of(object, "name");
  result.numerics = text_of(object, "numerics");
  result.token = text_of(object, "token");
  result.verdict = verdict_from(text_of(object, "verdict"));
  result.judge = judge_from_text(text_of(object, "judge"));
  result.reason = text_of(object, "reason");
  if (const json::object* difference = object.at("first_difference").if_object()) {
    result.first_difference = difference_from_json(*difference);
  }
  if (const json::value* wrong = object.if_contains("wrong_op"))
    result.wrong_op = wrong_op_from_json(wrong->as_object());
  if (const json::value* hazards = object.if_contains("hazards")) {
    for (const json::value& one : hazards->as_array())
      result.hazards.push_back(hazard_from_json(one.as_object()));
  }
  result.counters = counters_from_json(object.at("counters").as_object());
  if (const json::value* costs = object.if_contains("costs"))
    result.costs = json::value_to<Costs>(*costs);
  if (object.contains("file")) result.file = text_of(object, "file");
  if (object.contains("data_from")) result.data_from = text_of(object, "data_from");
  if (const json::value* text = object.if_contains("schedules"))
    result.schedules = text->as_string().c_str();
  if (const json::value* spots = object.if_contains("blind")) {
    result.blind = json::value_to<std::vector<std::string>>(*spots);
  }
  if (const json::value* edges = object.if_contains("redundant_edges")) {
    result.redundant_edges = json::value_to<std::vector<std::string>>(*edges);
  }
  result.seconds = object.at("seconds").to_number<double>();
  result.replay = text_of(object, "replay");
  result.device = device_from_json(object.at("device").as_object());
  return result;
}

std::int64_t count_of(const std::vector<CaseResult>& results, Verdict verdict) {
  return std::count_if(results.begin(), results.end(),
                       [&](const CaseResult& one) { return one.verdict == verdict; });
}

json::object run_to_json(const std::vector<CaseResult>& results, const DeviceInfo& device,
                         double seconds) {
  json::array list;
  for (const CaseResult& result : results) {
    json::object one = to_json(result);
    one.erase("device");
    list.push_back(std::move(one));
  }
  const json::object summary{{"scenarios", results.size()},
                             {"held", count_of(results, Verdict::holds)},
                             {"violated", count_of(results, Verdict::violated)},
                             {"broken", count_of(results, Verdict::broken)},
                             {"gave_up", count_of(results, Verdict::gave_up)},
                             {"skipped", count_of(results, Verdict::skipped)},
                             {"seconds", seconds}};
  return {{"tool", "lockstep"},        {"version", version()}, {"revision", revision()},
          {"device", to_json(device)}, {"summary", summary},   {"results", std::move(list)}};
}

}  // namespace lockstep
