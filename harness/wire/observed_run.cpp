#include "harness/wire/observed_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "engine/comm/store_communicator.h"
#include "engine/train/trainer.h"
#include "harness/base/stopwatch.h"
#include "harness/case/schedules.h"
#include "harness/inject/fault_injector.h"
#include "kernels/core/at.h"
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

// Reads tensors while the trainer runs, and writes the entries of a reply.
class Recorder : public StepListener {
 public:
  Recorder(const RunRequest& request, RunAnswer& answer) : request_(request), answer_(answer) {}

  // `communicator`: null for one rank.
  void observe(const Trainer& trainer, Communicator* communicator) {
    trainer_ = &trainer;
    communicator_ = communicator;
  }
  // What the trainer calls next belongs to this step or evaluation.
  void begin(bool training, std::int64_t step, const StepData& data) {
    training_ = training;
    step_ = step;
    places_.clear();
    const std::int64_t ranks = request_.store == nullptr ? 1 : request_.store->size();
    const std::int64_t rank = request_.store == nullptr ? 0 : request_.store->rank();
    for (std::int64_t g = rank; g < std::ssize(data.microbatches); g += ranks) {
      places_.push_back(places_of(request_.scenario.data, at(data.microbatches, g)));
      for (const auto& [begin, end] : places_.back()) tokens += training ? end - begin : 0;
      boost::json::array documents;
      for (const auto& [begin, end] : places_.back())
        documents.push_back(boost::json::array{begin, end});
      boost::json::object row{{"step", step_},
                              {"microbatch", std::ssize(places_) - 1},
                              {"documents", std::move(documents)}};
      if (!training_) row["phase"] = "evaluation";
      answer_.rows.push_back(std::move(row));
    }
  }

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool) override {
    ++microbatches;
    record(microbatch, activations);
  }
  void evaluation_pass_done(int microbatch, const std::vector<NamedTensor>& activations) override {
    record(microbatch, activations);
  }
  void gradients_done() override { add_parameters("gradient", &ParameterView::gradient); }
  void tell(const StepResult& result) {
    add_scalar("loss", "loss", result.loss);
    add_scalar("gradient_norm", "gradient_norm", result.norm);
  }
  void step_done() override {
    add_parameters("weight", &ParameterView::weight);
    add_parameters("moment1", &ParameterView::m);
    add_parameters("moment2", &ParameterView::v);
  }

  std::int64_t microbatches = 0;  // Forward passes of training.
  std::int64_t tokens = 0;        // Tokens of this rank's packs of training.

 private:
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
    std::vector<const NamedTensor*> wanted;
    for (const NamedTensor& tensor : activations) {
      const std::string kind = kind_of(tensor);
      const bool holds = training_ || kind == "token_loss";
      if (holds && is_row_tensor(tensor) && wants(kind)) wanted.push_back(&tensor);
    }
    std::vector<StoredValues> list;
    for (const NamedTensor* tensor : wanted) list.push_back(tensor->tensor);
    const std::vector<std::vector<float>> values = trainer_->read(list);
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
    Tally tally;
    for (const auto& [begin, end] : at(places_, microbatch)) {
      const auto bytes =
          std::span(typed.bytes).subspan(begin * row_bytes, (end - begin) * row_bytes);
      documents.emplace_back(digest(typed.dtype, bytes));
      tally.add(std::span(values).subspan(begin * cols, (end - begin) * cols));
    }
    boost::json::object entry = entry_of(kind_of(tensor), tensor.name, typed, tally);
    entry["microbatch"] = microbatch;
    entry["by_document"] = std::move(documents);
    add(std::move(entry), std::move(typed), "." + std::to_string(microbatch));
  }

  void add_parameters(const std::string& kind, Tensor<float> ParameterView::*member) {
    if (!training_ || !wants(kind)) return;
    const std::vector<ParameterView>& views = trainer_->parameters();
    std::vector<StoredValues> list;
    for (const ParameterView& view : views) list.emplace_back(view.*member);
    const std::vector<std::vector<float>> parts = trainer_->read(list);
    const std::map<int, std::vector<float>> wholes = gathered(views, parts);
    for (std::size_t i = 0; i < views.size();) {
      const ParameterView& first = views[i];
      // A parameter that is cut has several views.
      while (i < views.size() && views[i].index == first.index) ++i;
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

  void add_scalar(const std::string& kind, const std::string& name, float value) {
    if (!wants(kind)) return;
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
  void add(boost::json::object entry, TypedTensor typed, const std::string& place) {
    const std::string key = std::string(entry["kind"].as_string()) + ":" +
                            std::string(entry["name"].as_string()) + "@" + (training_ ? "" : "e") +
                            std::to_string(step_) + place;
    if (request_.dump.contains(key)) answer_.dumped.emplace_back(key, std::move(typed));
    answer_.tensors.push_back(std::move(entry));
  }

  const RunRequest& request_;
  RunAnswer& answer_;
  const Trainer* trainer_ = nullptr;
  Communicator* communicator_ = nullptr;
  bool training_ = true;
  std::int64_t step_ = 0;
  std::vector<Places> places_;  // By microbatch.
};

// Counters that our reading, or an amplifier, changes are left out.
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
    Counter::tokens_dropped};

// Device and trainer, and their successors after a resume.
class EngineRun {
 public:
  EngineRun(const RunRequest& request, const std::string& device_kind, const std::string& fault,
            Recorder& recorder)
      : request_(request),
        device_kind_(device_kind),
        recorder_(recorder),
        injector_(injector_for(request.scenario.model.pattern, fault)) {
    open();
    // Sharded weights are gathered again for it, which is no part of the run.
    const std::int64_t before = trainer_->counters().at(Counter::collectives);
    trainer_->set_weights(request.feed.weights());
    counters_[to_text(Counter::collectives)] =
        before - trainer_->counters().at(Counter::collectives);
  }

  void step(std::int64_t step) {
    recorder_.begin(true, step, request_.feed.training(step));
    recorder_.tell(trainer_->step());
    if (!trainer_->evaluation_is_due()) return;
    recorder_.begin(false, step, request_.feed.evaluation(step));
    trainer_->evaluate();
  }

  // Saves the state, destroys trainer and device, and goes on from the file.
  void resume() {
    const std::string path = request_.folder + "/state-" + std::to_string(++resumes_);
    trainer_->save(path);
    count();
    trainer_.reset();
    communicator_.reset();
    device_.reset();
    open();
    trainer_->load(path);
    if (communicator_) communicator_->barrier();
    if (!communicator_ || communicator_->rank() == 0) remove_state();
  }

  boost::json::object counters() {
    count();
    boost::json::object list{{"microbatches", recorder_.microbatches},
                             {"tokens", recorder_.tokens},
                             {"resumes", resumes_}};
    for (const auto& [name, value] : counters_) list[name] = value;
    return list;
  }

 private:
  // Sharded state has a file for each rank, whose names begin alike.
  void remove_state() const {
    const std::string stem = "state-" + std::to_string(resumes_);
    for (const auto& entry : std::filesystem::directory_iterator(request_.folder)) {
      if (entry.path().filename().string().starts_with(stem))
        std::filesystem::remove_all(entry.path());
    }
  }
  void open() {
    const Scenario& scenario = request_.scenario;
    device_.emplace(open_backend(device_kind_, sim_options(scenario, request_.seed)), nullptr,
                    pressure_of(scenario), injector_.get());
    if (request_.store != nullptr) {
      device_->place = {.rank = request_.store->rank()};
      communicator_ = make_store_communicator(*device_, *request_.store);
    }
    trainer_.emplace(*device_, scenario, request_.feed,
                     TrainerOptions{.listener = &recorder_,
                                    .communicator = communicator_.get(),
                                    .scalars = &request_.feed.scalars()});
    recorder_.observe(*trainer_, communicator_.get());
  }
  void count() {
    const Counters counters = trainer_->counters();
    for (const Counter counter : kCounted) {
      std::int64_t& sum = counters_[to_text(counter)];
      const auto found = counters.find(counter);
      const std::int64_t here = found == counters.end() ? 0 : found->second;
      sum = counter == Counter::max_outstanding ? std::max(sum, here) : sum + here;
    }
  }

  const RunRequest& request_;
  const std::string device_kind_;
  Recorder& recorder_;
  std::unique_ptr<FaultInjector> injector_;
  std::optional<Device> device_;
  std::unique_ptr<Communicator> communicator_;
  std::optional<Trainer> trainer_;
  std::int64_t resumes_ = 0;
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
    std::vector<std::string> names{"microbatches", "tokens", "resumes"};
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
  RunAnswer answer;
  Recorder recorder(request, answer);
  EngineRun run(request, device_kind, fault, recorder);
  for (std::int64_t step = 0; step < request.scenario.training.steps; ++step) {
    if (request.resume_at.contains(step)) run.resume();
    run.step(step);
  }
  answer.counters = run.counters();
  answer.seconds = watch.seconds();
  return answer;
}

}  // namespace lockstep::wire
