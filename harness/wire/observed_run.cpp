#include "harness/wire/observed_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "engine/comm/ranks.h"
#include "engine/comm/store_communicator.h"
#include "engine/train/trainer.h"
#include "harness/base/stopwatch.h"
#include "harness/case/schedules.h"
#include "harness/inject/fault_injector.h"
#include "kernels/core/at.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/documents/layout.h"

namespace lockstep::wire {
namespace {

// The rows [first, second) of a pack's documents.
using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;

Places places_of(const Scenario::Data& data, const Microbatch& microbatch) {
  Places places;
  std::int64_t row = 0;
  for (const Document& document : microbatch.documents) {
    const std::int64_t length = std::ssize(document.tokens);
    places.emplace_back(row, row + length);
    row += slot_rows(length, data.gaps, data.align);
  }
  return places;
}

// The entries of a reply, in program order, and what was counted beside them. Ranks that are
// threads write to one, in turns.
class Entries {
 public:
  explicit Entries(const RunRequest& request) : request_(request) {}

  // This process answers for its own rank, whichever rank ran a microbatch: its number there, or
  // none.
  std::optional<std::int64_t> own_number(std::int64_t global) const {
    if (global % request_.ranks != request_.rank) return {};
    return global / request_.ranks;
  }

  // `global`: of a microbatch; -1 for what belongs to a step.
  void add(bool training, std::int64_t step, std::int64_t global, boost::json::object entry,
           const std::string& key, TypedTensor typed) {
    if (request_.dump.contains(key)) dumped_.emplace_back(key, std::move(typed));
    // Passes of training, then what belongs to the step, then the evaluation after it.
    const int part = !training ? 2 : global < 0 ? 1 : 0;
    entries_[{step, part, global}].push_back(std::move(entry));
  }
  void move_to(RunAnswer& answer) {
    for (auto& [place, list] : entries_) {
      for (boost::json::object& entry : list) answer.tensors.push_back(std::move(entry));
    }
    answer.dumped = std::move(dumped_);
  }

  std::int64_t microbatches = 0;   // Forward passes of training that this process answers for.
  std::int64_t tokens_of_all = 0;  // As the engine would print them.

 private:
  const RunRequest& request_;
  std::map<std::tuple<std::int64_t, int, std::int64_t>, std::vector<boost::json::object>> entries_;
  std::vector<std::pair<std::string, TypedTensor>> dumped_;
};

// Reads tensors while the trainer of a rank runs, and writes the entries of a reply.
class Recorder : public StepListener {
 public:
  // `communicator`: null for one rank. `tells_of_steps`: whether it reports what belongs to a step.
  Recorder(const RunRequest& request, Entries& entries, Communicator* communicator,
           bool tells_of_steps)
      : request_(request),
        entries_(entries),
        communicator_(communicator),
        tells_of_steps_(tells_of_steps) {}

  void observe(const Device& device, const Trainer& trainer) {
    device_ = &device;
    trainer_ = &trainer;
  }
  // What the trainer calls next belongs to this step or evaluation.
  void begin(bool training, std::int64_t step, const StepData& data) {
    training_ = training;
    step_ = step;
    places_.clear();
    for (std::int64_t g = rank(); g < std::ssize(data.microbatches); g += ranks())
      places_.push_back(places_of(request_.scenario.data, at(data.microbatches, g)));
  }

  // A run that is asked for tensors of steps alone shall not be slowed down by reading others.
  bool looks_at_passes() const override { return wants("token_loss") || wants("activation"); }
  // Passes that are not told of, since they are undone.
  void pause(bool paused) { paused_ = paused; }

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool) override {
    if (paused_) return;
    entries_.microbatches += entries_.own_number(global(microbatch)).has_value();
    record(microbatch, activations);
  }
  void evaluation_pass_done(int microbatch, const std::vector<NamedTensor>& activations) override {
    record(microbatch, activations);
  }
  void evaluation_replayed(int microbatch, const std::vector<NamedTensor>& activations,
                           bool live) override {
    if (live) record(microbatch, activations);
  }
  void gradients_done() override {
    if (!paused_) add_parameters("gradient", &ParameterView::gradient);
  }
  void tell(const StepResult& result) {
    if (tells_of_steps_) entries_.tokens_of_all += result.tokens;
    add_scalar("loss", "loss", result.loss);
    if (request_.scenario.model.pattern.find('E') != std::string::npos) {
      add_scalar("loss", "router_losses.balance", result.router_losses.balance);
      add_scalar("loss", "router_losses.z", result.router_losses.z);
    }
    add_scalar("gradient_norm", "gradient_norm", result.norm);
  }
  void step_done() override {
    if (paused_) return;
    add_parameters("weight", &ParameterView::weight);
    add_parameters("moment1", &ParameterView::m);
    add_parameters("moment2", &ParameterView::v);
    add_biases();
  }

  // How often the host waited because tensors were read.
  std::int64_t waits() const { return waits_; }

 private:
  std::int64_t ranks() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  std::int64_t rank() const { return communicator_ == nullptr ? 0 : communicator_->rank(); }
  std::int64_t global(std::int64_t microbatch) const { return microbatch * ranks() + rank(); }

  std::vector<std::vector<float>> read(const std::vector<StoredValues>& list) {
    const std::int64_t before = device_->counters.host_syncs;
    std::vector<std::vector<float>> values = trainer_->read(list);
    waits_ += device_->counters.host_syncs - before;
    return values;
  }
  bool wants(const std::string& kind) const { return request_.observe.contains(kind); }
  static std::string kind_of(const NamedTensor& tensor) {
    return tensor.name == "token_loss" ? "token_loss" : "activation";
  }
  // A tensor with one value a row of the pack is [1, T].
  bool is_row_tensor(const NamedTensor& tensor) const {
    const std::int64_t length = request_.scenario.data.pack_length;
    return tensor.rows == NamedTensor::Rows::pack &&
           (tensor.tensor.rows == length ||
            (tensor.tensor.rows == 1 && tensor.tensor.cols == length));
  }

  void record(int microbatch, const std::vector<NamedTensor>& activations) {
    if (!entries_.own_number(global(microbatch))) return;
    std::vector<const NamedTensor*> wanted;
    for (const NamedTensor& tensor : activations) {
      const std::string kind = kind_of(tensor);
      const bool holds = training_ || kind == "token_loss";
      if (holds && is_row_tensor(tensor) && wants(kind)) wanted.push_back(&tensor);
    }
    if (wanted.empty()) return;  // Reading nothing would wait for the device all the same.
    std::vector<StoredValues> list;
    for (const NamedTensor* tensor : wanted) list.push_back(tensor->tensor);
    const std::vector<std::vector<float>> values = read(list);
    for (std::size_t i = 0; i < wanted.size(); ++i) add_rows(*wanted[i], values[i], microbatch);
  }

  void add_rows(const NamedTensor& tensor, const std::vector<float>& values, int microbatch) {
    const std::int64_t length = request_.scenario.data.pack_length;
    const std::int64_t cols = std::ssize(values) / length;
    TypedTensor typed{tensor.tensor.narrow ? "BF16" : "F32", {length}, {}};
    if (tensor.tensor.rows == length && tensor.tensor.cols > 1) typed.shape.push_back(cols);
    typed.bytes = stored_bytes(values, tensor.tensor.narrow);
    const std::int64_t row_bytes = std::ssize(typed.bytes) / length;
    boost::json::array documents;
    Tally tally, all;
    for (const auto& [begin, end] : at(places_, microbatch)) {
      const auto bytes =
          std::span(typed.bytes).subspan(begin * row_bytes, (end - begin) * row_bytes);
      documents.emplace_back(digest(typed.dtype, bytes));
      tally.add(std::span(values).subspan(begin * cols, (end - begin) * cols));
    }
    all.add(values);
    const std::int64_t number = *entries_.own_number(global(microbatch));
    boost::json::object entry = entry_of(kind_of(tensor), tensor.name, typed, tally);
    entry["microbatch"] = number;
    entry["by_document"] = std::move(documents);
    entry["outside"] = all.nonzero - tally.nonzero;
    add(std::move(entry), std::move(typed), "." + std::to_string(number), global(microbatch));
  }

  void add_parameters(const std::string& kind, Tensor<float> ParameterView::*member) {
    if (!training_ || !wants(kind)) return;
    const std::vector<ParameterView>& views = trainer_->parameters();
    std::vector<StoredValues> list;
    for (const ParameterView& view : views) list.emplace_back(view.*member);
    const std::vector<std::vector<float>> parts = read(list);
    const std::map<int, std::vector<float>> wholes = gathered(views, parts);
    for (std::size_t i = 0; i < views.size();) {
      const ParameterView& first = views[i];
      // A parameter that is cut has several views.
      while (i < views.size() && views[i].index == first.index) ++i;
      if (!tells_of_steps_) continue;
      const std::vector<float>& whole = wholes.at(first.index);
      TypedTensor typed{"F32", {first.full_rows, first.full_cols}, stored_bytes(whole, false)};
      if (first.is_vector) typed.shape = {first.full_rows * first.full_cols};
      Tally tally;
      tally.add(whole);
      boost::json::object entry = entry_of(kind, first.name, typed, tally);
      add(std::move(entry), std::move(typed), "");
    }
  }

  // Whole parameters by index, from the parts of all ranks; this rank's own are taken where several
  // have them. Every rank calls it.
  std::map<int, std::vector<float>> gathered(const std::vector<ParameterView>& views,
                                             const std::vector<std::vector<float>>& parts) const {
    std::map<int, std::vector<float>> wholes;
    std::string words;
    for (std::size_t i = 0; i < views.size(); ++i) {
      const ParameterView& view = views[i];
      wholes[view.index].resize(view.full_rows * view.full_cols);
      const std::int64_t head[] = {view.index, view.first, std::ssize(parts[i])};
      words.append(reinterpret_cast<const char*>(head), sizeof head);
      words.append(reinterpret_cast<const char*>(parts[i].data()), parts[i].size() * sizeof(float));
    }
    if (communicator_ != nullptr) {
      for (const std::string& of_a_rank : communicator_->all_gather_object(words))
        put(of_a_rank, wholes);
    }
    put(words, wholes);
    return wholes;
  }
  static void put(const std::string& words, std::map<int, std::vector<float>>& wholes) {
    for (std::size_t place = 0; place < words.size();) {
      std::int64_t head[3];
      std::memcpy(head, words.data() + place, sizeof head);
      place += sizeof head;
      const std::size_t bytes = head[2] * sizeof(float);
      std::vector<float>& whole = wholes.at(static_cast<int>(head[0]));
      if (bytes > 0) std::memcpy(whole.data() + head[1], words.data() + place, bytes);
      place += bytes;
    }
  }

  // Every rank has the whole of them.
  void add_biases() {
    if (!training_ || !wants("weight") || !tells_of_steps_) return;
    for (const ExpertBiasView& view : trainer_->expert_biases()) {
      const std::vector<float> values = read({StoredValues(view.bias)}).front();
      TypedTensor typed{"F32", {std::ssize(values)}, stored_bytes(values, false)};
      Tally tally;
      tally.add(values);
      boost::json::object entry =
          entry_of("weight", "layers." + std::to_string(view.layer) + ".router.bias", typed, tally);
      add(std::move(entry), std::move(typed), "");
    }
  }

  void add_scalar(const std::string& kind, const std::string& name, float value) {
    if (!wants(kind) || !tells_of_steps_) return;
    const std::vector<float> values{value};
    TypedTensor typed{"F32", {}, stored_bytes(values, false)};
    Tally tally;
    tally.add(values);
    boost::json::object entry = entry_of(kind, name, typed, tally);
    add(std::move(entry), std::move(typed), "");
  }

  struct Tally {
    void add(std::span<const float> values) {
      for (const float value : values) {
        nan += std::isnan(value);
        nonzero += value != 0;  // A NaN too.
      }
    }
    std::int64_t nan = 0, nonzero = 0;
  };
  boost::json::object entry_of(const std::string& kind, const std::string& name,
                               const TypedTensor& typed, const Tally& tally) const {
    boost::json::object entry{{"kind", kind},
                              {"step", step_},
                              {"name", name},
                              {"dtype", typed.dtype},
                              {"shape", boost::json::value_from(typed.shape)},
                              {"sha256", digest(typed.dtype, typed.bytes)},
                              {"nan", tally.nan},
                              {"nonzero", tally.nonzero}};
    if (!training_) entry["phase"] = "evaluation";
    return entry;
  }
  void add(boost::json::object entry, TypedTensor typed, const std::string& place,
           std::int64_t global = -1) {
    const std::string key = std::string(entry["kind"].as_string()) + ":" +
                            std::string(entry["name"].as_string()) + "@" + (training_ ? "" : "e") +
                            std::to_string(step_) + place;
    entries_.add(training_, step_, global, std::move(entry), key, std::move(typed));
  }

  const RunRequest& request_;
  Entries& entries_;
  Communicator* communicator_;
  bool tells_of_steps_;
  const Device* device_ = nullptr;
  const Trainer* trainer_ = nullptr;
  std::int64_t waits_ = 0;
  bool training_ = true, paused_ = false;
  std::int64_t step_ = 0;
  std::vector<Places> places_;  // By microbatch.
};

// Counters that an amplifier changes are left out.
constexpr Counter kCounted[] = {
    Counter::graphs_captured,     Counter::graph_replays,        Counter::eager_fallbacks,
    Counter::graphs_evicted,      Counter::recaptures,           Counter::max_outstanding,
    Counter::slots_live,          Counter::evaluations,          Counter::bytes_planned,
    Counter::bytes_offloaded,     Counter::bytes_reloaded,       Counter::persistent_buffers,
    Counter::late_gathers,        Counter::offloads_delayed,     Counter::spare_buffers,
    Counter::copies_in_graphs,    Counter::copy_bytes_in_graphs, Counter::pairs_routed,
    Counter::experts_used,        Counter::expert_rows_read,     Counter::ops_recomputed,
    Counter::fallbacks_documents, Counter::fallbacks_length,     Counter::fallbacks_cut,
    Counter::evaluation_replays,  Counter::collectives,          Counter::collectives_in_graphs,
    Counter::tokens_dropped,      Counter::capture_passes,       Counter::offloads_in_flight,
    Counter::host_syncs,          Counter::fp8_products,         Counter::fp8_casts,
    Counter::weight_casts,        Counter::amax_exchanges};
// The most of each part of a run is told, not the sum.
constexpr Counter kMost[] = {Counter::max_outstanding, Counter::slots_live,
                             Counter::offloads_in_flight};

// From where the run was saved last, or from the start, to `end`.
struct Part {
  std::int64_t ranks = 1;
  Scenario::Resume end;  // The end of the run: after the last step.
  bool first = false, last = false;
};

std::vector<Part> parts_of(const RunRequest& request) {
  std::vector<Scenario::Resume> ends = request.scenario.training.resume_at;
  for (const std::int64_t step : request.resume_at) ends.push_back({.step = step});
  const auto place = [](const Scenario::Resume& one) {
    return std::pair(one.step, one.microbatch);
  };
  std::ranges::sort(ends, {}, place);
  const auto again = std::ranges::unique(ends, {}, place);
  ends.erase(again.begin(), again.end());
  std::vector<Part> parts;
  std::int64_t ranks = request.ranks;
  for (const Scenario::Resume& end : ends) {
    parts.push_back({.ranks = ranks, .end = end});
    ranks = end.data == 0 ? request.ranks : end.data;
  }
  parts.push_back({.ranks = ranks, .end = {.step = request.scenario.training.steps}});
  parts.front().first = parts.back().last = true;
  return parts;
}

// A run, part by part: what is between two parts was saved, destroyed and loaded.
class EngineRun {
 public:
  EngineRun(const RunRequest& request, const std::string& device_kind, const std::string& fault)
      : request_(request),
        device_kind_(device_kind),
        injector_(injector_for(request.scenario.model.pattern, fault)),
        entries_(request) {}

  RunAnswer run() {
    RunAnswer answer;
    add_rows(answer.rows);
    for (const Part& part : parts_of(request_)) {
      run_part(part);
      resumes_ += !part.last;
      remove_state(resumes_ - (part.last ? 0 : 1));
    }
    entries_.move_to(answer);
    answer.counters = {{"microbatches", entries_.microbatches},
                       {"tokens", tokens_},
                       {"tokens_of_all", entries_.tokens_of_all},
                       {"resumes", resumes_},
                       {"rollbacks", rollbacks_}};
    if (!request_.rollback_at.empty() && request_.rank == 0) remove_files("rollback");
    for (const auto& [name, value] : counters_) answer.counters[name] = value;
    return answer;
  }

 private:
  // The packs of the rank that this process answers for.
  void add_rows(boost::json::array& rows) {
    for (std::int64_t step = 0; step < request_.scenario.training.steps; ++step) {
      add_rows(rows, step, true, request_.feed.training(step));
      const std::int64_t every = request_.scenario.training.eval_every;
      if (every > 0 && (step + 1) % every == 0)
        add_rows(rows, step, false, request_.feed.evaluation(step));
    }
  }
  void add_rows(boost::json::array& rows, std::int64_t step, bool training, const StepData& data) {
    for (std::int64_t g = 0; g < std::ssize(data.microbatches); ++g) {
      const std::optional<std::int64_t> number = entries_.own_number(g);
      if (!number) continue;
      boost::json::array documents;
      for (const auto& [begin, end] : places_of(request_.scenario.data, at(data.microbatches, g))) {
        documents.push_back(boost::json::array{begin, end});
        tokens_ += training ? end - begin : 0;
      }
      boost::json::object row{
          {"step", step}, {"microbatch", *number}, {"documents", std::move(documents)}};
      if (!training) row["phase"] = "evaluation";
      rows.push_back(std::move(row));
    }
  }

  void run_part(const Part& part) {
    const Scenario& asked = request_.scenario;
    const Scenario scenario =
        part.ranks == asked.parallel.data ? asked : by_ranks(asked, part.ranks);
    Device device(open_backend(device_kind_, sim_options(scenario, request_.seed)), nullptr,
                  pressure_of(scenario), injector_.get());
    if (request_.store != nullptr) {
      device.place = {.rank = request_.store->rank()};
      const std::unique_ptr<Communicator> communicator =
          make_store_communicator(device, *request_.store);
      return run_rank(part, scenario, device, communicator.get());
    }
    if (request_.ranks == 1 && part.ranks == 1) return run_rank(part, scenario, device, nullptr);
    run_ranks(device, static_cast<int>(part.ranks), static_cast<std::uint64_t>(request_.seed),
              [&](Communicator& one) { run_rank(part, scenario, device, &one); });
  }

  // `communicator`: null for one rank.
  void run_rank(const Part& part, const Scenario& scenario, Device& device,
                Communicator* communicator) {
    const std::int64_t rank = communicator == nullptr ? 0 : communicator->rank();
    const bool tells_of_steps = request_.store != nullptr || rank == 0;
    Recorder recorder(request_, entries_, communicator, tells_of_steps);
    const StepScalars* const scalars = request_.own_scalars ? nullptr : &request_.feed.scalars();
    Trainer trainer(
        device, scenario, request_.feed,
        TrainerOptions{.listener = &recorder, .communicator = communicator, .scalars = scalars});
    recorder.observe(device, trainer);
    const Counters before = begin(part, trainer);
    while (trainer.steps_done() < part.end.step) {
      if (request_.rollback_at.contains(trainer.steps_done())) roll_back(trainer, recorder, rank);
      step(trainer, recorder);
    }
    if (part.end.microbatch > 0) {
      const std::int64_t at = trainer.steps_done();
      recorder.begin(true, at, request_.feed.training(at));
      trainer.accumulate(part.end.microbatch / part.ranks);
    }
    if (!part.last) trainer.save(state(resumes_));
    count(trainer, before, recorder.waits(), rank);
  }

  // Sharded weights are gathered again for weights and states that are set, which is no part of the
  // run.
  Counters begin(const Part& part, Trainer& trainer) {
    Counters before = trainer.counters();
    part.first ? trainer.set_weights(request_.feed.weights()) : trainer.load(state(resumes_ - 1));
    const Counters now = trainer.counters();
    for (auto& [counter, value] : before) value = now.at(counter) - value;
    return before;
  }
  void step(Trainer& trainer, Recorder& recorder) const {
    const std::int64_t step = trainer.steps_done();
    recorder.begin(true, step, request_.feed.training(step));
    recorder.tell(trainer.step());
    if (!trainer.evaluation_is_due()) return;
    recorder.begin(false, step, request_.feed.evaluation(step));
    trainer.evaluate();
  }

  void roll_back(Trainer& trainer, Recorder& recorder, std::int64_t rank) {
    const std::string saved = request_.folder + "/rollback";
    trainer.save(saved);
    recorder.pause(true);
    trainer.step();
    const std::int64_t next = trainer.steps_done(), all = request_.scenario.training.steps;
    if (next < all && request_.scenario.training.microbatches_at(next) > 1) trainer.accumulate(1);
    trainer.load(saved);
    recorder.pause(false);
    rollbacks_ += request_.store != nullptr || rank == request_.rank;
  }

  std::string state(std::int64_t number) const {
    return request_.folder + "/state-" + std::to_string(number);
  }
  // Sharded state has a file for each rank, whose names begin alike.
  void remove_state(std::int64_t number) const {
    if (number >= 1 && request_.rank == 0) remove_files("state-" + std::to_string(number - 1));
  }
  void remove_files(const std::string& stem) const {
    for (const auto& entry : std::filesystem::directory_iterator(request_.folder)) {
      if (entry.path().filename().string().starts_with(stem))
        std::filesystem::remove_all(entry.path());
    }
  }

  // Adds what this rank has counted, but for `before` and for the `waits` of our reading. Waits are
  // not counted of threads, which share a device, and where the trainer waits for copies of what it
  // offloads in order to show it.
  void count(const Trainer& trainer, const Counters& before, std::int64_t waits,
             std::int64_t rank) {
    const Counters counters = trainer.counters();
    const bool threads = request_.store == nullptr && request_.ranks > 1;
    for (const Counter counter : kCounted) {
      std::int64_t& sum = counters_[to_text(counter)];
      const bool unknown = counter == Counter::host_syncs &&
                           (threads || !request_.scenario.offload.modules.empty() ||
                            request_.scenario.cuda_graph.shared_memory);
      if (unknown || (threads && rank % request_.ranks != request_.rank)) continue;
      std::int64_t here = counters.contains(counter) ? counters.at(counter) : 0;
      if (counter == Counter::host_syncs) here -= waits;
      if (before.contains(counter)) here -= before.at(counter);
      sum = std::ranges::find(kMost, counter) != std::end(kMost) ? std::max(sum, here) : sum + here;
    }
  }

  const RunRequest& request_;
  const std::string device_kind_;
  std::unique_ptr<FaultInjector> injector_;
  Entries entries_;
  std::int64_t resumes_ = 0, rollbacks_ = 0, tokens_ = 0;
  std::map<std::string, std::int64_t> counters_;
};

}  // namespace

const std::vector<std::string>& observed_kinds() {
  static const std::vector<std::string> list{"token_loss",    "activation", "loss",    "gradient",
                                             "gradient_norm", "weight",     "moment1", "moment2"};
  return list;
}

const std::vector<std::string>& counted_names() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> names{"microbatches", "tokens", "tokens_of_all", "resumes",
                                   "rollbacks"};
    for (const Counter counter : kCounted) names.push_back(to_text(counter));
    return names;
  }();
  return list;
}

const std::vector<std::string>& exact_counters() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> names;
    for (const Counter counter : kCounted) names.push_back(to_text(counter));
    return names;
  }();
  return list;
}

RunAnswer observe_run(const RunRequest& request, const std::string& device_kind,
                      const std::string& fault) {
  const Stopwatch watch;
  RunAnswer answer = EngineRun(request, device_kind, fault).run();
  answer.seconds = watch.seconds();
  return answer;
}

}  // namespace lockstep::wire
