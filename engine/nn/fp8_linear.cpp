#include "engine/nn/fp8_linear.h"

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/fp8.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

void count_cast(const PassContext& pass) {
  Device& device = pass.stream.device();
  device.count(pass.stream, device.counters.of(device.place.rank).fp8_casts);
}
void count_product(const PassContext& pass) {
  Device& device = pass.stream.device();
  device.count(pass.stream, device.counters.of(device.place.rank).fp8_products);
}

// Codes [rows, cols up to 16] at the begin of a scratch that all layers use.
template <class F>
Tensor<F> codes_in(Tensor<std::uint8_t> scratch, std::int64_t rows, std::int64_t cols) {
  require(rows * fp8_padded(cols) <= scratch.cols, "the scratch holds the codes of every layer");
  return tensor(reinterpret_cast<F*>(scratch.data), rows, fp8_padded(cols));
}

// Transposed codes of `rows` rows, where there is room for as many or for more.
template <class F>
Tensor<F> columns_for(Tensor<F> memory, std::int64_t rows, std::int64_t segments) {
  return tensor(memory.data, memory.rows, transposed_columns(rows, segments));
}

// Takes the exponents of an operand: from its own elements, or those of earlier steps.
template <class F>
void take_exponent(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x,
                   const Fp8Delayed& delayed, Tensor<std::uint32_t> amax,
                   Tensor<std::int32_t> exponent, Tensor<float> scale, AmaxFrom from) {
  const ExponentRule& rule = pass.exponents;
  Fp8Exponent<F> op{.k = exponent, .scale = scale};
  if (rule.measures && from == AmaxFrom::operand) {
    pass.stream.submit(Fp8ClearAmax{.amax = amax});
    pass.stream.submit(Fp8Amax{.x = x,
                               .row_document = rows.row_document,
                               .start = rows.start,
                               .rows = rows.rows,
                               .amax = amax});
  }
  if (rule.measures) op.amax = amax, op.pending = delayed.pending;
  if (rule.holds) op.held = delayed.exponent;
  const bool records = pass.stream.device().recording() >= 0;
  const bool leaves_out = faulty("fp8-exponents-of-the-capture", false, records);
  if (!leaves_out) pass.stream.submit(op);
  const bool reads = faulty("fp8-host-reads-a-scale", false, true);
  if (reads) pass.stream.synchronize();
}

template <class F>
void cast(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x,
          Tensor<std::int32_t> exponent, Tensor<F> codes, Tensor<F> transposed) {
  pass.stream.submit(Fp8Cast<F>{.x = x,
                                .row_document = rows.row_document,
                                .start = rows.start,
                                .rows = rows.rows,
                                .k = exponent,
                                .codes = codes,
                                .transposed = transposed});
  count_cast(pass);
}

// For a planted fault: codes of dY of the other type.
void cast_as_inputs(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x,
                    Tensor<std::int32_t> exponent, Tensor<e5m2> codes, Tensor<e5m2> transposed) {
  const auto other = [](const Tensor<e5m2>& t) {
    return Tensor<e4m3>{reinterpret_cast<e4m3*>(t.data), t.rows, t.cols, t.pitch};
  };
  cast<e4m3>(pass, rows, x, exponent, other(codes), other(transposed));
}

void cast_gradient(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> dy,
                   Tensor<std::int32_t> exponent, Tensor<e5m2> codes, Tensor<e5m2> transposed) {
  const auto casts = faulty("fp8-gradients-in-the-type-of-inputs", &cast<e5m2>, &cast_as_inputs);
  casts(pass, rows, dy, exponent, codes, transposed);
}

}  // namespace

Fp8Saved Fp8Linear::make(SavedMaker& maker, const Fp8BufferRows& rows, Tensor<e4m3> again,
                         bool product_again) const {
  const std::string layer = word(*weight_.fp8.layer);
  const std::int64_t segments = rows.of.segments();
  const auto make_words = [&]<class Word>(const char* name, Tensor<Word>& to) {
    to = maker.make_unnamed<Word>((layer + name).c_str(), 1, segments);
  };
  Fp8Saved saved;
  saved.again = again.data != nullptr;
  saved.product_again = product_again;
  make_words(".x_amax", saved.x_amax);
  make_words(".x_k", saved.x_exponent);
  make_words(".x_scale", saved.x_scale);
  make_words(".dy_amax", saved.dy_amax);
  make_words(".dy_k", saved.dy_exponent);
  make_words(".dy_scale", saved.dy_scale);
  saved.x = saved.again ? again
                        : maker.make_unnamed<e4m3>((layer + ".x8").c_str(), inputs(),
                                                   transposed_columns(rows.count, segments));
  if (rows.is_shown) show(maker, rows, saved);
  return saved;
}

void Fp8Linear::show(SavedMaker& maker, const Fp8BufferRows& rows, const Fp8Saved& saved) const {
  const std::string layer = word(*weight_.fp8.layer);
  using Rows = NamedTensor::Rows;
  maker.show(layer + ".x_amax", Fp8Amax::kName, saved.x_amax, Rows::words);
  maker.show(layer + ".x_k", Fp8Exponent<e4m3>::kName, saved.x_exponent, Rows::words);
  if (!saved.again) {
    StoredValues codes(saved.x, rows.count, inputs(), StoredValues::Codes::by_columns);
    if (rows.of.rows) codes.segments = {rows.of.start, rows.of.rows, rows.follows_the_data};
    maker.show(layer + ".x8", Fp8Cast<e4m3>::kName, codes,
               !rows.of.rows ? Rows::pack
               : rows.ragged ? Rows::ragged_buffer
                             : Rows::buffer);
  }
  const Fp8Weight& w = weight_.fp8;
  // The amax of rows that this rank owns is not that of the weight.
  const bool has_amax = !w.gathered || !w.delayed.exponent;
  if (has_amax) maker.show(layer + ".w_amax", Fp8Amax::kName, w.amax, Rows::words);
  maker.show(layer + ".w_k", Fp8Exponent<e4m3>::kName, w.exponent, Rows::words);
  if (!w.comes_and_goes)
    maker.show(layer + ".w8", Fp8Cast<e4m3>::kName,
               StoredValues(w.codes, weight_.weight.rows, inputs(), StoredValues::Codes::by_rows),
               Rows::words);
  maker.show_backward(layer + ".dy_amax", Fp8Amax::kName, saved.dy_amax);
  maker.show_backward(layer + ".dy_k", Fp8Exponent<e5m2>::kName, saved.dy_exponent);
}

void Fp8Linear::plan(Device& device, std::int64_t rows, Tensor<std::uint8_t> workspace) const {
  std::uint8_t* const memory = workspace.data;
  const auto matrix = [&]<class Element>(Element, std::int64_t of_rows, std::int64_t of_cols) {
    return tensor(reinterpret_cast<Element*>(memory), of_rows, of_cols);
  };
  const Tensor<float> scale = matrix(float{}, 1, 1);
  const std::int64_t in = fp8_padded(inputs()), out = fp8_padded(outputs());
  Backend& backend = device.backend();
  backend.plan(Submission(Fp8LinearForward{.x = matrix(e4m3{}, rows, in),
                                           .w = matrix(e4m3{}, outputs(), in),
                                           .x_scale = scale,
                                           .w_scale = scale,
                                           .y = matrix(bf16{}, rows, outputs()),
                                           .workspace = workspace}));
  backend.plan(Submission(Fp8LinearInputGradient{.dy = matrix(e5m2{}, rows, out),
                                                 .w = matrix(e4m3{}, inputs(), out),
                                                 .dy_scale = scale,
                                                 .w_scale = scale,
                                                 .dx = matrix(bf16{}, rows, inputs()),
                                                 .workspace = workspace}));
  const Fp8LinearWeightGradient gradient{.dy = matrix(e5m2{}, outputs(), fp8_padded(rows)),
                                         .x = matrix(e4m3{}, inputs(), fp8_padded(rows)),
                                         .dy_scale = scale,
                                         .x_scale = scale,
                                         .workspace = workspace};
  const Tensor<float> result = matrix(float{}, outputs(), inputs());
  Fp8LinearWeightGradient writes = gradient, adds = gradient;
  writes.dw = result;
  adds.acc = result;
  if (!weight_.gradient || weight_.first_writes) backend.plan(Submission(writes));
  if (weight_.gradient) backend.plan(Submission(adds));
}

// A pass that computes X again finds the exponent that its first time took.
void Fp8Linear::forward(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x,
                        Tensor<bf16> y, const Fp8Saved& saved, AmaxFrom from) const {
  const bool first = !pass.recomputes;
  const bool quantises =
      faulty("fp8-weights-of-the-pass-before", first && !weight_.fp8.cached, false);
  if (quantises) quantise(pass.stream, weight_, CodesFor::forward_pass, pass.exponents);
  if (first) {
    take_exponent<e4m3>(pass, rows, x, weight_.fp8.own(weight_.fp8.delayed_x), saved.x_amax,
                        saved.x_exponent, saved.x_scale, from);
  }
  const Tensor<e4m3> codes = codes_in<e4m3>(pass.codes.x, x.rows, x.cols);
  const bool keeps = !saved.again || pass.recomputes;
  cast(pass, rows, x, saved.x_exponent, codes,
       keeps ? columns_for(saved.x, x.rows, rows.segments()) : Tensor<e4m3>{});
  pass.stream.submit(Fp8LinearForward{.x = codes,
                                      .w = weight_.fp8.codes,
                                      .x_scale = saved.x_scale,
                                      .w_scale = weight_.fp8.scale,
                                      .row_document = rows.row_document,
                                      .start = rows.start,
                                      .rows = rows.rows,
                                      .y = y,
                                      .workspace = pass.workspace});
  count_product(pass);
}

// The weight's gradient needs the codes of an input that is saved itself, or computed again.
void Fp8Linear::cast_again(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> x,
                           const Fp8Saved& saved) const {
  const bool again = faulty("fp8-codes-made-again-of-a-passed-input", saved.again, true);
  const bool is_due = again && !saved.product_again;
  const bool casts = faulty("fp8-original-input-not-quantised-again", is_due, false);
  if (!casts) return;
  cast(pass, rows, x, saved.x_exponent, Tensor<e4m3>{},
       columns_for(saved.x, x.rows, rows.segments()));
}

// A gradient that has memory of its own is added to the accumulator afterwards. One for each rank
// whose rows the experts have.
void Fp8Linear::weight_gradient(const PassContext& pass, const Fp8Rows& rows, const Fp8Saved& saved,
                                std::int64_t count, Tensor<e5m2> transposed) const {
  Fp8LinearWeightGradient op{.dy = transposed,
                             .x = columns_for(saved.x, count, rows.segments()),
                             .dy_scale = saved.dy_scale,
                             .x_scale = saved.x_scale,
                             .start = rows.start,
                             .rows = rows.rows,
                             .workspace = pass.workspace,
                             .sources = static_cast<std::int32_t>(weight_.sources)};
  for (; op.source < op.sources; ++op.source) {
    const Parameter of = weight_.of_source(op.source);
    if (of.microbatch_gradient) {
      op.dw = of.microbatch_gradient;
    } else if (begins_sum(pass, of)) {
      op.dw = of.gradient;
    } else {
      op.acc = of.gradient;
    }
    pass.stream.submit(op);
    if (of.microbatch_gradient) accumulate(pass, of);
  }
  count_product(pass);
}

void Fp8Linear::backward(const PassContext& pass, const Fp8Rows& rows, Tensor<bf16> dy,
                         Tensor<bf16> x, Tensor<bf16> dx, const Fp8Saved& saved,
                         AmaxFrom from) const {
  const auto take =
      faulty("fp8-gradients-scaled-like-inputs", &take_exponent<e5m2>, &take_exponent<e4m3>);
  take(pass, rows, dy, weight_.fp8.own(weight_.fp8.delayed_dy), saved.dy_amax, saved.dy_exponent,
       saved.dy_scale, from);
  const Tensor<e5m2> codes = codes_in<e5m2>(pass.codes.dy, dy.rows, dy.cols);
  const Tensor<e5m2> transposed =
      columns_for(tensor(reinterpret_cast<e5m2*>(pass.codes.transposed_dy.data), dy.cols, 0),
                  dy.rows, rows.segments());
  require(transposed.rows * transposed.cols <= pass.codes.transposed_dy.cols,
          "the scratch holds the codes of every layer");
  cast_gradient(pass, rows, dy, saved.dy_exponent, codes, transposed);
  cast_again(pass, rows, x, saved);
  weight_gradient(pass, rows, saved, dy.rows, transposed);
  if (weight_.fp8.comes_and_goes) transpose_codes(pass.stream, weight_);
  if (!weight_.fp8.cached) quantise(pass.stream, weight_, CodesFor::backward_pass, pass.exponents);
  const Tensor<float> scale = weight_.fp8.scale;
  pass.stream.submit(Fp8LinearInputGradient{
      .dy = codes,
      .w = weight_.fp8.transposed,
      .dy_scale = saved.dy_scale,
      .w_scale = faulty("fp8-input-gradient-takes-the-input-scale", scale, saved.x_scale),
      .row_document = rows.row_document,
      .start = rows.start,
      .rows = rows.rows,
      .dx = dx,
      .workspace = pass.workspace});
  count_product(pass);
}

}  // namespace lockstep
