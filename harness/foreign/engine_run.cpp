#include "harness/foreign/engine_run.h"

#include <algorithm>
#include <set>

#include "harness/foreign/engine_failure.h"
#include "kernels/core/at.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

[[noreturn]] void broken(const std::string& what) {
  throw EngineFailure(JudgeKind::protocol, "the engine's reply: " + what);
}

const json::value& field(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  if (value == nullptr) broken(std::string("`") + name + "` is missing");
  return *value;
}

std::int64_t integer(const json::value& value, const char* what) {
  if (!value.is_int64() || value.as_int64() < 0)
    broken(std::string("`") + what + "` is no integer from 0 on");
  return value.as_int64();
}

std::string text(const json::object& object, const char* name) {
  const json::value& value = field(object, name);
  if (!value.is_string()) broken(std::string("`") + name + "` is no text");
  return std::string(value.as_string());
}

const json::array& list(const json::value& value, const char* what) {
  if (!value.is_array()) broken(std::string("`") + what + "` is no list");
  return value.as_array();
}

const json::object& object(const json::value& value, const char* what) {
  if (!value.is_object()) broken(std::string("`") + what + "` is no object");
  return value.as_object();
}

StepPlace place_of(const json::object& entry) {
  const bool evaluation = entry.contains("phase") && text(entry, "phase") == "evaluation";
  return {.evaluation = evaluation, .step = integer(field(entry, "step"), "step")};
}

bool is_digest(const std::string& digest) {
  return digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == std::string::npos;
}

TensorEntry entry_of(const json::object& said) {
  TensorEntry entry;
  entry.dtype = text(said, "dtype");
  entry.sha256 = text(said, "sha256");
  for (const json::value& extent : list(field(said, "shape"), "shape"))
    entry.shape.push_back(integer(extent, "shape"));
  entry.nan = integer(field(said, "nan"), "nan");
  entry.nonzero = integer(field(said, "nonzero"), "nonzero");
  if (said.contains("outside")) entry.outside = integer(said.at("outside"), "outside");
  bool digests = is_digest(entry.sha256);
  if (const json::value* const parts = said.if_contains("by_document")) {
    entry.by_document.emplace();
    for (const json::value& part : list(*parts, "by_document")) {
      if (!part.is_string()) broken("`by_document` holds more than texts");
      entry.by_document->emplace_back(part.as_string());
      digests = digests && is_digest(entry.by_document->back());
    }
  }
  if (!digests) broken("a digest is not 64 hexadecimal digits");
  return entry;
}

bool same(const TensorEntry& a, const TensorEntry& b) {
  return a.sha256 == b.sha256 && a.dtype == b.dtype && a.shape == b.shape;
}

// The part of a run that one rank tells.
void add_rank(EngineRun& run, const json::object& reply, std::int64_t rank, std::int64_t ranks) {
  for (const json::value& item : list(field(reply, "rows"), "rows")) {
    const json::object& said = object(item, "rows");
    const std::int64_t global = integer(field(said, "microbatch"), "microbatch") * ranks + rank;
    auto& rows = run.rows[{place_of(said), global}];
    for (const json::value& pair : list(field(said, "documents"), "documents")) {
      const json::array& ends = list(pair, "documents");
      if (ends.size() != 2) broken("a document's rows are two numbers");
      rows.emplace_back(integer(ends[0], "rows"), integer(ends[1], "rows"));
    }
  }
  for (const json::value& item : list(field(reply, "tensors"), "tensors")) {
    const json::object& said = object(item, "tensors");
    TensorId id{.kind = text(said, "kind"), .name = text(said, "name"), .at = place_of(said)};
    if (is_kind_of_a_microbatch(id.kind))
      id.microbatch = integer(field(said, "microbatch"), "microbatch") * ranks + rank;
    TensorEntry entry = entry_of(said);
    const auto known = run.tensors.find(id);
    if (known == run.tensors.end()) {
      run.order.push_back(id);
      run.tensors.emplace(std::move(id), std::move(entry));
    } else if (id.is_of_a_microbatch()) {
      broken(id.text() + " is told twice");
    } else if (!same(known->second, entry)) {
      throw EngineFailure(JudgeKind::ranks, id.text() + " differs between ranks");
    }
  }
  std::map<std::string, std::int64_t>& counters = run.counters.emplace_back();
  for (const json::key_value_pair& item : object(field(reply, "counters"), "counters"))
    counters[item.key()] = integer(item.value(), "counters");
}

std::string place_text(const StepPlace& at, std::int64_t microbatch) {
  return std::string(at.evaluation ? "the evaluation after step " : "step ") +
         std::to_string(at.step) +
         (microbatch < 0 ? "" : ", microbatch " + std::to_string(microbatch));
}

// Why these rows are not those of the pack's documents; "" if they are.
std::string fault_of_rows(std::vector<std::pair<std::int64_t, std::int64_t>> rows,
                          const Microbatch& pack, std::int64_t pack_length) {
  if (rows.size() != pack.documents.size()) return "there are other documents";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].second - rows[i].first != std::ssize(pack.documents[i].tokens))
      return "document " + std::to_string(i) + " has another length";
  }
  std::erase_if(rows, [](const auto& one) { return one.first == one.second; });
  std::sort(rows.begin(), rows.end());
  std::int64_t end = 0;
  for (const auto& one : rows) {
    if (one.first < end) return "documents overlap";
    end = one.second;
  }
  return end > pack_length ? "a document leaves the pack" : "";
}

}  // namespace

bool is_kind_of_a_microbatch(const std::string& kind) {
  return kind == "token_loss" || kind == "activation" || kind == "activation_gradient";
}

std::string TensorId::text() const {
  return kind + " of " + name + " in " + place_text(at, microbatch);
}

std::string TensorId::key(int ranks) const {
  std::string text = kind + ":" + name + "@" + (at.evaluation ? "e" : "") + std::to_string(at.step);
  if (is_of_a_microbatch()) text += "." + std::to_string(microbatch / ranks);
  return text;
}

std::int64_t EngineRun::counter(const std::string& name) const {
  std::int64_t sum = 0;
  for (const auto& one : counters) {
    const auto found = one.find(name);
    if (found != one.end()) sum += found->second;
  }
  return sum;
}

bool EngineRun::has_gradient() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& one) {
    return one.first.kind == "gradient" && one.second.nonzero > 0;
  });
}

EngineRun run_from_replies(const std::vector<json::object>& replies) {
  for (const json::object& reply : replies) {
    if (reply.contains("failed")) {
      std::string reason = text(reply, "failed");
      for (const char* more : {"what", "where"}) {
        if (reply.contains(more)) reason += (*more ? ": " : "") + text(reply, more);
      }
      if (text(reply, "failed") == "protocol") broken(reason);
      throw RunFailed(text(reply, "failed"), reason.substr(0, 2000));
    }
  }
  for (const json::object& reply : replies) {
    if (reply.contains("skipped")) throw Skipped(text(reply, "skipped"));
    if (reply.contains("unsupported")) broken("`run` is unsupported");
  }
  EngineRun run;
  const auto ranks = std::ssize(replies);
  for (std::int64_t rank = 0; rank < ranks; ++rank) add_rank(run, at(replies, rank), rank, ranks);
  return run;
}

std::optional<RunFault> fault_of(const EngineRun& run, const EngineFeed& feed,
                                 std::int64_t pack_length, const Hello& hello,
                                 const std::vector<std::string>& observed) {
  using enum JudgeKind;
  const std::set<std::string> kinds(observed.begin(), observed.end());
  std::size_t packs = 0;
  for (const auto& [at_step, microbatches] : feed.packs) {
    packs += microbatches.size();
    for (std::int64_t g = 0; g < std::ssize(microbatches); ++g) {
      const auto found = run.rows.find({at_step, g});
      const std::string wrong =
          found == run.rows.end() ? "they are missing"
                                  : fault_of_rows(found->second, at(microbatches, g), pack_length);
      if (!wrong.empty()) return RunFault{rows, "rows of " + place_text(at_step, g) + ": " + wrong};
      const TensorId loss{
          .kind = "token_loss", .name = "token_loss", .at = at_step, .microbatch = g};
      if (kinds.contains("token_loss") && !run.tensors.contains(loss))
        return RunFault{protocol, loss.text() + " was asked for and is missing"};
    }
  }
  if (run.rows.size() != packs) return RunFault{rows, "rows of packs that are not in the feed"};
  for (const TensorId& id : run.order) {
    const TensorEntry& entry = run.tensors.at(id);
    const auto pack = run.rows.find({id.at, id.microbatch});
    if (!kinds.contains(id.kind)) return RunFault{protocol, id.text() + " was not asked for"};
    if (id.is_of_a_microbatch() && pack == run.rows.end())
      return RunFault{protocol, id.text() + " is of no pack"};
    if (entry.by_document &&
        (!id.is_of_a_microbatch() || entry.by_document->size() != pack->second.size()))
      return RunFault{protocol, id.text() + " has digests of other documents"};
  }
  for (const char* kind : {"gradient", "weight"}) {
    if (!kinds.contains(kind) || !hello.weights_by_name) continue;
    for (std::int64_t step = 0; step < feed.steps; ++step) {
      for (const auto& [name, weight] : *feed.weights) {
        const TensorId id{.kind = kind, .name = name, .at = {false, step}};
        if (!name.ends_with("router.bias") && !run.tensors.contains(id))
          return RunFault{protocol, id.text() + " was asked for and is missing"};
      }
    }
  }
  return {};
}

}  // namespace lockstep::foreign
