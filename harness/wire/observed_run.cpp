#include "harness/wire/observed_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

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

  void observe(const Trainer& trainer) { trainer_ = &trainer; }
  // What the trainer calls next belongs to this step or evaluation.
  void begin(bool training, std::int64_t step, const StepData& data) {
    training_ = training;
    step_ = step;
    places_.clear();
    for (const Microbatch& microbatch : data.microbatches) {
      places_.push_back(places_of(request_.scenario.data, microbatch));
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
  void step_done() override {
    add_parameters("weight", &ParameterView::weight);
    add_parameters("moment1", &ParameterView::m);
    add_parameters("moment2", &ParameterView::v);
  }

  std::int64_t microbatches = 0;  // Forward passes of training.

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
    for (std::size_t i = 0; i < views.size();) {
      std::vector<float> whole;  // A parameter that is cut has several views in order of rows.
      const ParameterView& first = views[i];
      for (; i < views.size() && views[i].index == first.index; ++i)
        whole.insert(whole.end(), parts[i].begin(), parts[i].end());
      TypedTensor typed{"F32", {first.full_rows, first.full_cols}, stored_bytes(whole, false)};
      if (first.is_vector) typed.shape = {first.full_rows * first.full_cols};
      Tally tally;
      tally.add(whole);
      boost::json::object entry = entry_of(kind, first.name, typed, tally);
      add(std::move(entry), std::move(typed), "");
    }
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
  bool training_ = true;
  std::int64_t step_ = 0;
  std::vector<Places> places_;  // By microbatch.
};

const std::map<std::string, Counter>& engine_counters() {
  static const std::map<std::string, Counter> list{
      {"graphs_captured", Counter::graphs_captured}, {"graph_replays", Counter::graph_replays},
      {"eager_fallbacks", Counter::eager_fallbacks}, {"recaptures", Counter::recaptures},
      {"evaluations", Counter::evaluations},         {"max_outstanding", Counter::max_outstanding},
      {"bytes_offloaded", Counter::bytes_offloaded}, {"bytes_reloaded", Counter::bytes_reloaded},
      {"ops_recomputed", Counter::ops_recomputed}};
  return list;
}

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
    trainer_->set_weights(request.feed.weights());
  }

  void step(std::int64_t step) {
    recorder_.begin(true, step, request_.feed.training(step));
    tokens_ += trainer_->step().tokens;
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
    device_.reset();
    open();
    trainer_->load(path);
    std::filesystem::remove(path);  // One rank has one file.
  }

  boost::json::object counters() {
    count();
    boost::json::object list{
        {"microbatches", recorder_.microbatches}, {"tokens", tokens_}, {"resumes", resumes_}};
    for (const auto& [name, value] : counters_) list[name] = value;
    return list;
  }

 private:
  void open() {
    const Scenario& scenario = request_.scenario;
    device_.emplace(open_backend(device_kind_, sim_options(scenario, request_.seed)), nullptr,
                    pressure_of(scenario), injector_.get());
    trainer_.emplace(*device_, scenario, request_.feed,
                     TrainerOptions{.listener = &recorder_, .scalars = &request_.feed.scalars()});
    recorder_.observe(*trainer_);
  }
  void count() {
    const Counters counters = trainer_->counters();
    for (const auto& [name, counter] : engine_counters()) {
      std::int64_t& sum = counters_[name];
      const std::int64_t here = counters.at(counter);
      sum = counter == Counter::max_outstanding ? std::max(sum, here) : sum + here;
    }
  }

  const RunRequest& request_;
  const std::string device_kind_;
  Recorder& recorder_;
  std::unique_ptr<FaultInjector> injector_;
  std::optional<Device> device_;
  std::optional<Trainer> trainer_;
  std::int64_t tokens_ = 0, resumes_ = 0;
  std::map<std::string, std::int64_t> counters_;
};

}  // namespace

const std::vector<std::string>& observed_kinds() {
  static const std::vector<std::string> list{"token_loss", "activation", "gradient",
                                             "weight",     "moment1",    "moment2"};
  return list;
}

const std::vector<std::string>& counted_names() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> names{"microbatches", "tokens", "resumes"};
    for (const auto& [name, counter] : engine_counters()) names.push_back(name);
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
