#include "harness/foreign/engine_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>

#include "harness/base/bits.h"
#include "harness/base/errors.h"
#include "harness/base/stopwatch.h"
#include "harness/foreign/engine_failure.h"
#include "kernels/core/at.h"
#include "scenarios/io/reader.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr int kMostRepetitions = 5;
constexpr std::size_t kMostDumped = 16;

// What must be equal of a tensor.
bool equal(const TensorEntry& a, const TensorEntry& b, bool whole) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.by_document != b.by_document || a.nan != b.nan)
    return false;
  return (a.by_document && !whole) || a.sha256 == b.sha256;
}

const std::string* digest_of(const TensorEntry& entry, std::int64_t document) {
  if (!entry.by_document || document >= std::ssize(*entry.by_document)) return nullptr;
  return &at(*entry.by_document, document);
}

std::int64_t layer_of(const std::string& name) {
  std::int64_t layer = -1;
  if (name.starts_with("layers.")) std::istringstream(name.substr(7)) >> layer;
  return layer;
}

std::int64_t columns_of(const std::vector<std::int64_t>& shape) {
  return shape.size() < 2 ? 1 : std::max<std::int64_t>(shape.back(), 1);
}

// Cases of this process so far: their files have names of their own.
std::int64_t next_number() {
  static std::int64_t last = 0;
  return ++last;
}

// A folder for a feed, gone with this.
class FeedFolder {
 public:
  explicit FeedFolder(std::string path) : path_(std::move(path)) { fs::create_directory(path_); }
  FeedFolder(const FeedFolder&) = delete;
  FeedFolder& operator=(const FeedFolder&) = delete;
  ~FeedFolder() {
    std::error_code ignored;
    if (std::getenv("LOCKSTEP_ENGINE_KEEP") == nullptr) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::vector<float> as_floats(const wire::TypedTensor& tensor) {
  if (tensor.dtype == "F32") return wire::values_of<float>(tensor);
  std::vector<float> values;
  if (tensor.dtype == "BF16") {
    for (std::size_t i = 0; i + 2 <= tensor.bytes.size(); i += 2) {
      std::uint16_t half = 0;
      std::memcpy(&half, tensor.bytes.data() + i, 2);
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
    }
  } else if (tensor.dtype == "F64") {
    for (std::size_t i = 0; i + 8 <= tensor.bytes.size(); i += 8) {
      double value = 0;
      std::memcpy(&value, tensor.bytes.data() + i, 8);
      values.push_back(static_cast<float>(value));
    }
  }
  return values;
}

Choices::Choices(const std::string& text) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    static const std::set<std::string> names{"half", "microbatch", "rank", "variant", "order"};
    if (equals == std::string::npos || !names.contains(part.substr(0, equals)))
      throw RequestError("--relation: '" + part +
                         "' is no choice such as half=odd, microbatch=1, rank=0, variant=token");
    given_[part.substr(0, equals)] = part.substr(equals + 1);
  }
}

bool Choices::takes(const std::string& name, const std::string& value) const {
  const auto found = given_.find(name);
  return found == given_.end() || found->second == value;
}

EngineCase::EngineCase(EngineWorld& world, const std::string& command, const Scenario& scenario,
                       double deadline_s, FreshProcesses fresh)
    : world_(world),
      command_(command),
      asked_{.scenario = scenario, .feed = make_feed(scenario)},
      expected_(scenario.expect.counters),
      deadline_s_(deadline_s),
      fresh_(fresh),
      name_(std::to_string(next_number())) {
  asked_.scenario.expect = {};  // Variants of it are other runs.
}

EngineCase::~EngineCase() {
  std::error_code ignored;
  fs::remove(world_.folder() + "/weights-" + name_, ignored);
}

bool EngineCase::honours(const std::string& key) const {
  const json::value* const value = hello().honours.if_contains(key);
  return value != nullptr && !(value->is_bool() && !value->as_bool());
}

RunRequest EngineCase::asked_with(EngineFeed feed) const {
  RunRequest request = asked_;
  request.feed = std::move(feed);
  return request;
}

RunRequest EngineCase::asked_with(const std::function<void(Scenario&)>& change,
                                  std::string what) const {
  RunRequest request = asked_;
  change(request.scenario);
  request.what = std::move(what);
  return request;
}

std::vector<json::object> EngineCase::ask(EngineWorld& world, const char* op,
                                          const RunRequest& request, json::object more) {
  const FeedFolder folder(world.folder() + "/feed-" + name_ + "-" + std::to_string(++runs_));
  const bool own = request.feed.weights != asked_.feed.weights;
  const std::string weights = world.folder() + "/weights-" + name_ + (own ? "-own" : "");
  write_feed(request.feed, folder.path(), weights);
  if (own) fs::remove(weights);  // The feed has a link to it.
  const auto deadline = static_cast<std::int64_t>(std::ceil(deadline_s_));
  more["op"] = op;
  more["scenario"] = json::parse(canonical_form(request.scenario));
  more["feed"] = folder.path();
  more["observe"] = json::value_from(request.observe.empty() ? hello().observes : request.observe);
  if (!request.amplify.empty()) more["amplify"] = request.amplify;
  if (!request.resume_at.empty()) more["resume_at"] = json::value_from(request.resume_at);
  if (!request.rollback_at.empty()) more["rollback_at"] = json::value_from(request.rollback_at);
  more["deadline_s"] = deadline;
  return world.ask(more, deadline_s_);
}

EngineRun EngineCase::run_in(EngineWorld& world, const RunRequest& request) {
  const Stopwatch watch;
  EngineRun run = run_from_replies(ask(world, "run", request, {}));
  run.seconds = watch.seconds();
  const std::vector<std::string>& observed =
      request.observe.empty() ? hello().observes : request.observe;
  const std::optional<RunFault> fault =
      fault_of(run, request.feed, request.scenario.data.pack_length, hello(), observed);
  if (!fault) return run;
  if (fault->judge == JudgeKind::protocol) throw EngineFailure(fault->judge, fault->reason);
  throw Violated{.judge = fault->judge, .reason = fault->reason + " (" + request.what + ")"};
}

EngineRun EngineCase::run(const RunRequest& request) { return run_in(world_, request); }

EngineRun EngineCase::run_in_fresh_processes(const RunRequest& request) {
  EngineWorld fresh(command_, world_.ranks());
  EngineRun run = run_in(fresh, request);
  fresh.close();
  return run;
}

const EngineRun& EngineCase::base() {
  if (base_) return *base_;
  EngineRun run = this->run(asked_);
  for (const TensorId& id : run.order) {
    if (run.tensors.at(id).nan > 0)
      throw Violated{.judge = JudgeKind::nan, .reason = id.text() + " holds a NaN"};
  }
  base_ = std::move(run);
  return *base_;
}

EngineCase::Dump EngineCase::dump(const RunRequest& request, const std::vector<TensorId>& ids) {
  const int count = world_.ranks();
  std::set<std::string> keys;
  for (const TensorId& id : ids) keys.insert(id.key(count));
  const std::string to = world_.folder() + "/dump-" + name_ + "-" + std::to_string(runs_);
  Dump dump{.run = run_from_replies(
                ask(world_, "dump", request, {{"tensors", json::value_from(keys)}, {"to", to}})),
            .tensors = {}};
  std::vector<std::map<std::string, wire::TypedTensor>> files;
  try {
    for (int rank = 0; rank < count; ++rank) {
      const std::string path = rank == 0 ? to : to + "." + std::to_string(rank);
      files.push_back(fs::exists(path) ? wire::read_tensor_file(path)
                                       : decltype(files)::value_type());
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } catch (const wire::WireError& error) {
    throw EngineFailure(JudgeKind::protocol, error.what());
  }
  for (const TensorId& id : ids) {
    const std::int64_t rank = id.is_of_a_microbatch() ? id.microbatch % count : 0;
    const auto found = at(files, rank).find(id.key(count));
    const auto entry = dump.run.tensors.find(id);
    if (found == at(files, rank).end() || entry == dump.run.tensors.end()) continue;
    const wire::TypedTensor& tensor = found->second;
    if (tensor.dtype != entry->second.dtype || tensor.shape != entry->second.shape ||
        wire::digest(tensor.dtype, tensor.bytes) != entry->second.sha256)
      throw EngineFailure(JudgeKind::protocol,
                          id.text() + " in the dumped file is not what the reply says");
    dump.tensors[id] = tensor;
  }
  return dump;
}

EngineCase::Dump EngineCase::doubled_dump(const RunRequest& request,
                                          const std::vector<TensorId>& ids) {
  Dump twice = dump(request, ids);
  for (auto& [id, tensor] : twice.tensors) {
    if (tensor.dtype != "F32" && tensor.dtype != "BF16") continue;
    std::vector<float> values = as_floats(tensor);
    for (float& value : values) value *= 2;
    tensor.bytes = wire::stored_bytes(values, tensor.dtype == "BF16");
    twice.run.tensors.at(id).sha256 = wire::digest(tensor.dtype, tensor.bytes);
  }
  std::erase_if(twice.tensors, [](const auto& one) {
    return one.second.dtype != "F32" && one.second.dtype != "BF16";
  });
  return twice;
}

bool EngineCase::is_left_out(const TensorId& id) const {
  if (unstable_.contains(id)) return true;
  return std::any_of(hello().unstable.begin(), hello().unstable.end(),
                     [&](const std::string& pattern) { return matches(pattern, id.name); });
}

std::vector<TensorPair> EngineCase::pairs_of(const EngineRun& a, const EngineRun& b,
                                             const std::set<std::string>& kinds) {
  std::vector<TensorPair> pairs;
  for (const EngineRun* one : {&a, &b}) {
    for (const TensorId& id : one->order) {
      if (one == &b && a.tensors.contains(id)) continue;
      if (kinds.empty() || kinds.contains(id.kind)) pairs.push_back({.a = id, .b = id});
    }
  }
  return pairs;
}

std::vector<TensorPair> EngineCase::differing(const EngineRun& a, const EngineRun& b,
                                              const std::vector<TensorPair>& pairs,
                                              bool padding_too) const {
  const bool whole = padding_too && hello().padding_defined;
  std::vector<TensorPair> found;
  for (const TensorPair& pair : pairs) {
    if (is_left_out(pair.a) || is_left_out(pair.b)) continue;
    const auto x = a.tensors.find(pair.a), y = b.tensors.find(pair.b);
    bool same = x != a.tensors.end() && y != b.tensors.end();
    if (same && pair.document_a < 0) {
      same = equal(x->second, y->second, whole);
    } else if (same) {
      const std::string* const of_a = digest_of(x->second, pair.document_a);
      const std::string* const of_b = digest_of(y->second, pair.document_b);
      same = of_a != nullptr && of_b != nullptr && *of_a == *of_b;
    }
    if (!same) found.push_back(pair);
  }
  return found;
}

EngineCase::Repeated EngineCase::repeat(const Comparison& comparison,
                                        const std::vector<TensorPair>& pairs) {
  std::vector<TensorId> of_a, of_b;
  for (const TensorPair& pair : pairs) {
    if (of_a.size() == kMostDumped) break;
    of_a.push_back(pair.a);
    of_b.push_back(pair.b);
  }
  Repeated repeated;
  while (!repeated.differs && repeated.pairs < kMostRepetitions) {
    ++repeated.pairs;
    repeated.a =
        comparison.a_is_doubled ? doubled_dump(comparison.a, of_a) : dump(comparison.a, of_a);
    repeated.b = dump(comparison.b, of_b);
    repeated.differing = differing(repeated.a.run, repeated.b.run, pairs, comparison.padding_too);
    repeated.differs = !repeated.differing.empty();
  }
  return repeated;
}

// A difference between runs is no finding of a relation where equal runs differ over processes.
void EngineCase::require_stable_over_processes(const Comparison& comparison, const EngineRun& a,
                                               const std::vector<TensorPair>& pairs) {
  std::vector<TensorPair> same;
  for (const TensorPair& pair : pairs) same.push_back({.a = pair.a, .b = pair.a});
  const EngineRun fresh = run_in_fresh_processes(comparison.a);
  for (const TensorPair& pair : differing(a, fresh, same, true)) {
    if (!hello().deterministic) {
      leave_out(pair.a);
      continue;
    }
    throw Violated{.reason = pair.a.text() + " differs between equal runs in two processes (" +
                             comparison.a.what + "), and the engine claims to be deterministic",
                   .choices = comparison.choices};
  }
}

void EngineCase::report_not_repeated(const Comparison& comparison, const std::string& differ,
                                     int pairs) const {
  const std::string once =
      differ + "; it did not differ again in " + std::to_string(pairs) + " pairs of runs";
  // So of either run there was another with other bits.
  if (hello().deterministic)
    throw Violated{.reason = once + ", and the engine claims to be deterministic",
                   .choices = comparison.choices};
  throw Unstable{once, comparison.choices};
}

void EngineCase::expect_equal(const Comparison& comparison, const EngineRun& a, const EngineRun& b,
                              const std::vector<TensorPair>& pairs) {
  std::vector<TensorPair> found = differing(a, b, pairs, comparison.padding_too);
  if (found.empty()) return;
  const bool looks = fresh_ != FreshProcesses::never;
  if (looks && !comparison.equal_runs && !comparison.a_is_doubled) {
    require_stable_over_processes(comparison, a, found);
    found = differing(a, b, found, comparison.padding_too);
    if (found.empty()) return;
  }
  const std::string count =
      found.size() == 1 ? "1 tensor differs" : std::to_string(found.size()) + " tensors differ";
  const std::string differ = count + " between " + comparison.a.what + " and " + comparison.b.what +
                             ", first " + found.front().a.text();
  const Repeated again = repeat(comparison, found);
  if (!again.differs) report_not_repeated(comparison, differ, again.pairs);
  throw Violated{
      .reason = differ + "; again in 1 of " + std::to_string(again.pairs) + " more pairs of runs",
      .choices = comparison.choices,
      .first_difference = first_difference(comparison, again.differing.front(), again.a, again.b)};
}

FirstDifference EngineCase::first_difference(const Comparison& comparison, const TensorPair& pair,
                                             const Dump& a, const Dump& b) const {
  FirstDifference where;
  where.step = pair.a.at.step;
  where.layer = layer_of(pair.a.name);
  where.tensor = pair.a.kind + ":" + pair.a.name;
  where.got_from = comparison.a.what;
  where.want_from = comparison.b.what;
  if (pair.a.is_of_a_microbatch()) {
    where.rank = pair.a.microbatch % ranks();
    where.microbatch = pair.a.microbatch / ranks();
  }
  where.got = a.run.tensors.contains(pair.a) ? "other bits" : "missing";
  where.want = b.run.tensors.contains(pair.b) ? "bits" : "missing";
  const auto x = a.tensors.find(pair.a), y = b.tensors.find(pair.b);
  if (x == a.tensors.end() || y == b.tensors.end()) return where;
  where.bf16 = x->second.dtype == "BF16";
  const std::vector<float> got = as_floats(x->second), want = as_floats(y->second);
  if (got.size() != want.size() || x->second.dtype != y->second.dtype) {
    where.got = x->second.dtype + ", " + std::to_string(got.size()) + " elements";
    where.want = y->second.dtype + ", " + std::to_string(want.size()) + " elements";
    return where;
  }
  // Rows of documents, as places in both tensors; all elements where it has no such rows.
  const std::int64_t columns = columns_of(x->second.shape);
  std::vector<std::array<std::int64_t, 4>> ranges;  // First in a, first in b, count, document.
  const auto rows_a = a.run.rows.find({pair.a.at, pair.a.microbatch});
  const auto rows_b = b.run.rows.find({pair.b.at, pair.b.microbatch});
  const bool by_rows = pair.a.is_of_a_microbatch() && rows_a != a.run.rows.end() &&
                       rows_b != b.run.rows.end() &&
                       a.run.tensors.at(pair.a).by_document.has_value();
  for (std::int64_t i = 0; by_rows && i < std::ssize(rows_a->second); ++i) {
    if (pair.document_a >= 0 && i != pair.document_a) continue;
    const std::int64_t j = pair.document_b >= 0 ? pair.document_b : i;
    const auto& [begin, end] = at(rows_a->second, i);
    ranges.push_back({begin, at(rows_b->second, j).first, end - begin, i});
  }
  if (!by_rows) ranges.push_back({0, 0, std::ssize(got) / columns, -1});
  for (const auto& [first_a, first_b, count, document] : ranges) {
    for (std::int64_t e = 0; e < count * columns; ++e) {
      const std::int64_t i = first_a * columns + e, j = first_b * columns + e;
      if (i >= std::ssize(got) || j >= std::ssize(want)) break;
      const float g = at(got, i), w = at(want, j);
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      where.index = i;
      where.row = i / columns;
      where.column = i % columns;
      where.document = document;
      where.position = document < 0 ? -1 : e / columns;
      where.got = value_text(g);
      where.want = value_text(w);
      where.ulp = ulp_distance(g, w);
      where.stored_ulp = where.bf16 ? bf16_ulp_distance(g, w) : where.ulp;
      return where;
    }
  }
  return where;
}

}  // namespace lockstep::foreign
