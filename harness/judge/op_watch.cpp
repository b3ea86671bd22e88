#include "harness/judge/op_watch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "harness/base/bits.h"
#include "harness/expect/expectations.h"
#include "kernels/core/at.h"
#include "kernels/core/contract.h"
#include "kernels/core/fp8.h"
#include "kernels/ops/accumulate.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {
namespace {

const std::byte* row_of(const OperandBytes& operand, std::int64_t row) {
  return static_cast<const std::byte*>(operand.base) + row * operand.pitch_bytes;
}

// Codes of fp8 lie in rows of a multiple of 16 bytes.
std::vector<float> codes_of(const OperandBytes& operand, std::int64_t rows, std::int64_t cols) {
  if (operand.row_bytes != fp8_padded(cols)) return {};
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < cols; ++k)
      values.push_back(static_cast<float>(std::to_integer<int>(row_of(operand, i)[k])));
  }
  return values;
}

bool holds_whole_numbers(const std::string& name) {
  return name.starts_with("pack_metadata.") || name.starts_with("expert_layout.") ||
         name.starts_with("expert_counts.") || name == "fp8_exponent.k";
}

// The operand's first `rows` rows as floats, from fp32, bf16 or int32 as the bytes of a row and the
// name tell; empty where its rows have another number of elements. Of a table with room for more
// than it holds, the first elements.
std::vector<float> values_of(const OperandBytes& operand, const std::string& name,
                             std::int64_t rows, std::int64_t cols) {
  if (name.starts_with("fp8_cast.")) return codes_of(operand, rows, cols);
  const bool whole = holds_whole_numbers(name);
  const bool narrow = operand.row_bytes == 2 * cols && !whole;
  const bool fits =
      operand.row_bytes == 4 * cols || (whole && operand.rows == 1 && operand.row_bytes > 4 * cols);
  if (!narrow && !fits) return {};
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < cols; ++k) {
      std::uint32_t bits = 0;
      std::byte* const to = reinterpret_cast<std::byte*>(&bits) + (narrow ? 2 : 0);
      std::memcpy(to, row_of(operand, i) + k * (narrow ? 2 : 4), narrow ? 2 : 4);
      values.push_back(whole ? static_cast<float>(static_cast<std::int32_t>(bits))
                             : std::bit_cast<float>(bits));
    }
  }
  return values;
}

std::size_t hash_of(const OperandBytes& operand) {
  std::size_t hash = 0;
  for (std::int64_t i = 0; i < operand.rows; ++i) {
    const char* const begin = reinterpret_cast<const char*>(row_of(operand, i));
    const std::string_view row(begin, begin + operand.row_bytes);
    hash = hash * 31 + std::hash<std::string_view>()(row);
  }
  return hash;
}

bool is_written(const OperandBytes& operand) {
  return operand.rows > 0 && (operand.access == Access::out || operand.access == Access::accum);
}
bool is_read(const OperandBytes& operand) {
  return operand.rows > 0 && (operand.access == Access::in || operand.access == Access::accum);
}

const std::byte* begin_of(const OperandBytes& operand) { return row_of(operand, 0); }
const std::byte* end_of(const OperandBytes& operand) {
  return row_of(operand, operand.rows - 1) + operand.row_bytes;
}

// Columns of the same rows share bytes only if they overlap.
bool share_bytes(const OperandBytes& a, const OperandBytes& b) {
  if (end_of(a) <= begin_of(b) || end_of(b) <= begin_of(a)) return false;
  if (a.pitch_bytes != b.pitch_bytes || a.rows == 1 || b.rows == 1) return true;
  const std::int64_t pitch = a.pitch_bytes;
  const std::int64_t apart = (((begin_of(b) - begin_of(a)) % pitch) + pitch) % pitch;
  return apart < a.row_bytes || apart + b.row_bytes > pitch;
}
bool covers(const OperandBytes& a, const OperandBytes& b) {
  return begin_of(a) <= begin_of(b) && end_of(b) <= end_of(a) &&
         (a.row_bytes == a.pitch_bytes || a.row_bytes == b.row_bytes);
}

// The parts of the writer's place in which it is not the reader's.
std::string place_text(const StepLocation& writer, const StepLocation& reader) {
  std::string text;
  const auto add = [&](const char* name, int own, int of_reader) {
    if (own >= 0 && own != of_reader)
      text += (text.empty() ? " of " : ", ") + (name + std::to_string(own));
  };
  add("layer ", writer.layer, reader.layer);
  add("microbatch ", writer.microbatch, reader.microbatch);
  add("step ", writer.step, reader.step);
  return text;
}

// Whether the op adds its gradient to this operand, beside the one that it writes or instead.
bool is_accumulator(const OperandBytes& operand) {
  const std::string_view name = operand.name;
  return operand.access == Access::accum && (name == "acc" || name.ends_with("total"));
}

// What an accumulator begins with.
bool is_gradient(const OperandBytes& operand) {
  const std::string_view name = operand.name;
  return operand.rows > 0 && (name == "acc" || name == "dw" || name == "dweight");
}

// On the simulated device the ops of a library do what ours do.
std::string plain_name(const char* name) {
  constexpr std::string_view kLibrary = "cudnn_";
  const std::string_view text = name;
  return std::string(text.starts_with(kLibrary) ? text.substr(kLibrary.size()) : text);
}

// "conv_backward.dx" is what conv_backward writes.
std::string op_of(const oracle::Tensor& written) {
  return written.name.substr(0, written.name.find('.'));
}

// Most ops that store an operand of fp8 take its amax too.
bool may_be_left_to_another(const std::string& op) { return op == "fp8_amax"; }

// Experts that lie on several ranks compute the rows of all of these at once.
bool is_of_several_ranks(const Scenario& scenario, const oracle::Tensor& written) {
  if (expert_ranks(scenario) == 1 || written.layer < 0) return false;
  const std::string op = op_of(written);
  return at(scenario.model.pattern, written.layer) == 'E' &&
         (op.starts_with("expert_forward") || op.starts_with("expert_input_gradient") ||
          op.starts_with("expert_weight_gradient") || op.starts_with("activation_") ||
          op.starts_with("fp8_"));
}

bool is_of_backward_pass(const std::string& op) {
  return op.ends_with("_backward") || op.ends_with("_gradient");
}

}  // namespace

OpWatch::OpWatch(const Scenario& scenario, const DataSource& data, const std::string& mutation)
    : scenario_(scenario),
      data_(data),
      oracle_(scenario, {.numerics = scenario.numerics.front(),
                         .keep_activations = false,
                         .keep_written = true,
                         .mutation = mutation}),
      ranks_(scenario.parallel.data) {}

void OpWatch::expect_step(std::int64_t step) {
  ran_.clear();
  results_.clear();
  expected_.clear();
  const std::int64_t every = scenario_.training.eval_every;
  while (step_ < step) {
    ++step_;
    results_.clear();
    results_.push_back(oracle_.step(step_, data_.training(step_)));
  }
  if (every > 0 && (step + 1) % every == 0)
    results_.push_back(oracle_.evaluate(step, data_.evaluation(step)));
  for (const oracle::StepResult& result : results_) expect(result);
  for (auto& [accumulator, sum] : sums_) std::ranges::fill(sum, 0.0f);  // As a step must begin.
}

void OpWatch::expect(const oracle::StepResult& want) {
  for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
    for (const oracle::Tensor& tensor : want.microbatches[m].written) {
      if (is_of_several_ranks(scenario_, tensor)) continue;
      expected_[{static_cast<std::int64_t>(m), tensor.layer, tensor.name}].push_back(&tensor);
    }
  }
}

void OpWatch::begin(std::int64_t ranks) {
  ranks_ = ranks;
  writes_.clear();
  sums_.clear();
}

bool OpWatch::is_expected(const Key& key, const OperandBytes& operand) {
  const auto found = expected_.find(key);
  if (found == expected_.end()) return true;
  bool compared = false;
  for (const oracle::Tensor* want : found->second) {
    const std::int64_t rows = std::min(want->rows, operand.rows);
    const std::vector<float> got = values_of(operand, want->name, rows, want->cols);
    if (got.empty()) continue;
    compared = true;
    compared_.insert(want->name);
    if (!first_mismatch(got, std::span(want->values).first(got.size()))) return true;
  }
  return !compared;
}

// One op may clear the accumulators of several parameters.
void OpWatch::begin_sum(const OperandBytes& operand) {
  sums_.erase(sums_.lower_bound(begin_of(operand)), sums_.lower_bound(end_of(operand)));
  const std::int64_t cols = operand.row_bytes / static_cast<std::int64_t>(sizeof(float));
  sums_[begin_of(operand)] = values_of(operand, "", operand.rows, cols);
}

// Gradients are float. Of one rank nothing but ops writes them between two ops that add to them;
// ranks exchange them.
bool OpWatch::is_sum(const Key& key, const Submission& op, const OperandBytes& operand) {
  const std::int64_t cols = operand.row_bytes / static_cast<std::int64_t>(sizeof(float));
  const std::vector<float> got = values_of(operand, "", operand.rows, cols);
  const std::vector<float> before = std::exchange(sums_[begin_of(operand)], got);
  if (before.size() != got.size() || ranks_ > 1) return true;
  std::vector<std::vector<float>> terms;
  const Access of_terms = op.as<AccumulateGradient>() ? Access::in : Access::out;
  const bool has_terms = op.as<AccumulateGradient>() || std::string_view(operand.name) != "acc";
  for (const OperandBytes& term : op.operands()) {
    if (has_terms && term.access == of_terms && term.row_bytes == operand.row_bytes)
      terms.push_back(values_of(term, "", term.rows, cols));
  }
  const auto found = expected_.find(key);
  if (found != expected_.end()) {
    for (const oracle::Tensor* want : found->second) terms.push_back(want->values);
  }
  std::erase_if(terms, [&](const auto& term) { return term.size() != got.size(); });
  const auto is_added = [&](const std::vector<float>& term) {
    std::vector<float> sum = before;
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] = add(sum[e], term[e]);
    return !first_mismatch(got, sum);
  };
  return terms.empty() || std::ranges::any_of(terms, is_added);
}

void OpWatch::ran(const Submission& op, const StepLocation& place) {
  if (place.step > step_) expect_step(place.step);
  const std::string name = plain_name(op.type().name);
  const std::int64_t microbatch = place.microbatch * ranks_ + place.rank % ranks_;
  if (place.step == step_ && place.microbatch >= 0 && !place.before_capture) {
    ++ran_[{microbatch, place.layer, name}];
    ever_ran_.insert(name);
  }
  if (first_) return;
  const std::vector<OperandBytes> operands = op.operands();
  for (const OperandBytes& operand : operands) {
    if (first_ || !is_written(operand) || place.step != step_ || place.microbatch < 0 ||
        place.before_capture)
      continue;
    const std::string written = operand.name;
    const bool adds = is_accumulator(operand);
    const char* const term = name == "embedding_backward" ? ".dweight" : ".dw";
    if (adds ? is_sum({microbatch, place.layer, name + term}, op, operand)
             : is_expected({microbatch, place.layer, name + "." + written}, operand))
      continue;
    first_ = WrongOp{.step = place.step,
                     .rank = place.rank,
                     .microbatch = place.microbatch,
                     .layer = place.layer,
                     .backward = place.backward,
                     .op = op.type().name,
                     .operand = operand.name,
                     .inputs = {}};
  }
  for (const OperandBytes& operand : operands) {
    if (first_ && is_read(operand))
      first_->inputs.push_back({operand.name, writers(operand, place)});
    if (!first_ && operand.access == Access::out && is_gradient(operand)) begin_sum(operand);
    if (!first_ && is_written(operand))
      keep({operand, op.type().name, place, hash_of(operand), {}});
  }
}

std::int64_t OpWatch::runs(std::int64_t microbatch, const oracle::Tensor& written) const {
  const auto found = ran_.find({microbatch, written.layer, op_of(written)});
  return found == ran_.end() ? 0 : found->second;
}

std::optional<WrongOp> OpWatch::left_out() const {
  if (results_.empty()) return std::nullopt;
  const auto& microbatches = results_.front().microbatches;
  for (std::int64_t m = 0; m < std::ssize(microbatches); ++m) {
    const std::vector<oracle::Tensor>& written = at(microbatches, m).written;
    // For each, whether it ran: a second one of its layer and name if the op ran twice.
    std::vector<bool> ran;
    std::map<std::pair<int, std::string>, std::int64_t> asked;
    for (const oracle::Tensor& one : written)
      ran.push_back(may_be_left_to_another(op_of(one)) ||
                    ++asked[{one.layer, one.name}] <= runs(m, one));
    const std::size_t end = std::find(ran.rbegin(), ran.rend(), true).base() - ran.begin();
    std::size_t k = 0;
    while (k < end && (ran[k] || !ever_ran_.contains(op_of(written[k])))) ++k;
    if (k == end) continue;
    const oracle::Tensor& missing = written[k];
    WrongOp found{.step = step_,
                  .rank = m % ranks_,
                  .microbatch = m / ranks_,
                  .layer = missing.layer,
                  .backward = is_of_backward_pass(op_of(missing)),
                  .op = op_of(missing),
                  .operand = ""};
    const std::string graph = missing_graph(m, missing);
    if (!graph.empty()) found.inputs = {{"graph", graph}};
    return found;
  }
  return std::nullopt;
}

std::string OpWatch::missing_graph(std::int64_t microbatch, const oracle::Tensor& written) const {
  if (scenario_.cuda_graph.impl != GraphImpl::partial || step_ < scenario_.cuda_graph.warmup_steps)
    return "";
  const bool backward = is_of_backward_pass(op_of(written));
  int region = 0;
  for (const Scenario::Block& block : scenario_.blocks()) {
    const std::vector<int> layers = captured_symbols(scenario_, block);
    if (layers.empty()) continue;
    const auto is_here = [&](int layer) {
      return std::ranges::find(layers, layer) != layers.end();
    };
    if (!is_here(written.layer)) {
      ++region;
      continue;
    }
    // A backward pass turns with the op of a forward pass.
    const auto is_of_graph = [&](const oracle::Tensor& one) {
      return is_here(one.layer) && is_of_backward_pass(op_of(one)) == backward &&
             op_of(one) != "rope";
    };
    for (const oracle::Tensor& one : at(results_.front().microbatches, microbatch).written) {
      if (is_of_graph(one) && runs(microbatch, one) > 0) return "";
    }
    return std::string(backward ? "backward" : "forward") + " graph of region " +
           std::to_string(region);
  }
  return "";
}

void OpWatch::copied(void* to, const void* from, std::size_t bytes) {
  if (first_) return;
  const auto size = static_cast<std::int64_t>(bytes);
  const OperandBytes source{Access::in, const_cast<void*>(from), 1, size, size};
  const OperandBytes target{Access::out, to, 1, size, size};
  keep({target, "", {}, hash_of(target), last_writes(source)});
}

void OpWatch::keep(Write write) {
  std::erase_if(writes_, [&](const auto& earlier) { return covers(write.to, earlier->to); });
  writes_.push_back(std::make_shared<const Write>(std::move(write)));
}

// From the latest on, up to one that covers the operand or is of an earlier pass.
OpWatch::Writes OpWatch::last_writes(const OperandBytes& operand) const {
  Writes found;
  for (std::size_t i = writes_.size(); i-- > 0;) {
    const std::shared_ptr<const Write>& write = writes_[i];
    if (!share_bytes(write->to, operand)) continue;
    const auto is_same = [&](const auto& later) {
      return later->op == write->op && !write->op.empty() &&
             std::string_view(later->to.name) == write->to.name;
    };
    if (std::ranges::any_of(found, is_same)) break;
    found.push_back(write);
    if (covers(write->to, operand)) break;
  }
  return found;
}

std::string OpWatch::text_of(const Write& write, const StepLocation& reader) const {
  if (!write.op.empty()) return write.op + place_text(write.place, reader);
  std::string text;
  for (const auto& read : write.copied)
    text += (text.empty() ? "" : " and ") + text_of(*read, reader);
  return text.empty() ? "a copy" : "a copy of " + text;
}

std::string OpWatch::writers(const OperandBytes& operand, const StepLocation& reader) const {
  std::string text;
  for (const auto& last : last_writes(operand)) {
    const Write& write = *last;
    const bool changed = operand.access == Access::in && covers(operand, write.to) &&
                         hash_of(write.to) != write.hash;
    text +=
        (text.empty() ? "" : ", ") + text_of(write, reader) + (changed ? ", changed since" : "");
  }
  return text;
}

}  // namespace lockstep
