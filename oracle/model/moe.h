// A layer of experts, forward and backward (arithmetic.md 2.11): router, experts, shared expert.
#pragma once

#include "oracle/model/layer_parts.h"
#include "oracle/ops/combine.h"
#include "oracle/ops/experts.h"
#include "oracle/ops/router_gradient.h"

namespace lockstep::oracle {

template <class Precision>
class MoeLayer : LayerParts<Precision> {
  using Parts = LayerParts<Precision>;
  using typename Parts::Real;

 public:
  MoeLayer(Pass<Precision>& pass, int index) : Parts(pass, index) {}

  // Computes the saved tensors, of which "proj" is the last.
  void forward(const Matrix<Real>& x) {
    Matrix<Real>& logits = make("router.logits", moe().experts);
    linear<Unrounded<Real>>(pack(), x, weight(kRouter), logits, pass_.mutant);
    keep(logits);
    const Routed routed = route_rows(logits);
    wrote("router_forward.logits", logits);
    wrote("router_forward.scores", routed.routing.scores);
    wrote("router_forward.weights", routed.routing.weights);
    make("router.scores", moe().experts) = routed.routing.scores;
    make("router.weights", moe().top_k) = routed.routing.weights;
    const std::int64_t buffer = routed.dispatch.buffer, d = model_.hidden;
    Matrix<Real>& input = make("dispatched", buffer, d) = dispatched(routed.dispatch, x);
    Fp8ExpertOperands operands[2];
    operands[0] = make_operands(Fp8Layer::expert_fc1, buffer, widths_.expert_fc1, d);
    Matrix<Real>& fc1 = make("expert_fc1", buffer, widths_.expert_fc1);
    Matrix<Real>& act = make("moe_act", buffer, moe().hidden);
    operands[1] = make_operands(Fp8Layer::expert_fc2, buffer, d, moe().hidden);
    Matrix<Real>& out = make("expert_out", buffer, d);
    const ExpertWeights<Real> weights = expert_weights();
    experts<Precision>(routed.dispatch, model_.mlp.activation,
                       products(routed.dispatch, weights, operands, nullptr), input, fc1, act, out,
                       pass_.mutant);
    wrote("expert_counts.counts", 1, routed.routing.chosen);
    wrote("expert_layout.start", 1, routed.dispatch.first);
    wrote("expert_layout.rows", 1, routed.dispatch.rows);
    wrote("expert_layout.pair_row", routed.dispatch.place);
    wrote_balance(routed.balance);
    wrote("dispatch.buffer", input);
    wrote_operands(routed.dispatch, operands[0]);
    wrote(kForward, fc1);
    wrote("activation_forward.a", act);
    wrote_operands(routed.dispatch, operands[1]);
    wrote(kForward, out);
    const Matrix<Real>* shared = shares() ? &shared_forward(x) : nullptr;
    Matrix<Real>& proj = make("proj", d);
    combine<Precision>(pack(), routed.routing.weights, routed.dispatch, out, shared, proj,
                       pass_.mutant);
    wrote("combine.out", proj);
    report(routed);
  }

  // Computes the gradient of the norm's output from that of "proj".
  Matrix<Real> backward(const Matrix<Real>& x, const Matrix<Real>& d_out) {
    const Routed routed = route_rows(saved("router.logits"));
    const Routing<Real>& routing = routed.routing;
    Matrix<Real> dy(routed.dispatch.buffer, model_.hidden),
        d_weights(routing.weights.rows, routing.weights.cols);
    combine_gradient<Precision>(pack(), routing.weights, routed.dispatch, saved("expert_out"),
                                d_out, dy, d_weights, pass_.mutant);
    keep(d_weights);
    wrote("combine_backward.dy", dy);
    wrote("combine_backward.dweights", d_weights);
    Matrix<Real> d_act(routed.dispatch.buffer, moe().hidden),
        d_fc1(routed.dispatch.buffer, widths_.expert_fc1);
    const ExpertWeights<Real> weights = expert_weights();
    Fp8ExpertGradients operands[2];
    const Matrix<Real> d_buffer = experts_gradient<Precision>(
        routed.dispatch, model_.mlp.activation,
        products(routed.dispatch, weights, nullptr, operands), saved("dispatched"),
        saved("expert_fc1"), saved("moe_act"), dy, d_act, d_fc1, gradient(kExpertFc1),
        gradient(kExpertFc2), pass_.mutant);
    leave(Fp8Layer::expert_fc2, routed.dispatch, model_.hidden, operands[1]);
    wrote(kWeightGradient, moe().experts * model_.hidden, gradient(kExpertFc2));
    wrote(kInputGradient, d_act);
    wrote("activation_backward.dh", d_fc1);
    leave(Fp8Layer::expert_fc1, routed.dispatch, widths_.expert_fc1, operands[0]);
    wrote(kWeightGradient, moe().experts * widths_.expert_fc1, gradient(kExpertFc1));
    wrote(kInputGradient, d_buffer);
    Matrix<Real> dl = router_gradient(pack(), router_settings(), routing, routed.balance, d_weights,
                                      pass_.mutant);
    keep(dl);
    gradient(kRouter) = linear_weight_gradient<Unrounded<Real>>(pack(), dl, x, pass_.mutant);
    wrote("router_backward.dlogits", dl);
    wrote("router_weight_gradient.dwr", moe().experts, gradient(kRouter));
    const Matrix<Real> d_router =
        linear_input_gradient<Unrounded<Real>>(pack(), dl, weight(kRouter), x.cols, pass_.mutant);
    Matrix<Real> d_shared;
    if (shares()) d_shared = shared_backward(x, d_out);
    Matrix<Real> dx = input_gradient<Precision>(
        pack(), routed.dispatch, d_buffer, shares() ? &d_shared : nullptr, d_router, pass_.mutant);
    wrote("dispatch_backward.dx", dx);
    return dx;
  }

 private:
  using Parts::gradient;
  using Parts::make;
  using Parts::model_;
  using Parts::pass_;
  using Parts::product;
  using Parts::product_backward;
  using Parts::saved;
  using Parts::weight;
  using Parts::widths_;
  using Parts::wrote;

  // Values that follow from the logits, so that the backward pass can recompute them.
  struct Routed {
    Routing<Real> routing;
    Dispatch dispatch;
    Balance<Real> balance;
  };

  const Scenario::Model::Moe& moe() const { return model_.moe; }
  bool shares() const { return moe().shared_hidden > 0; }
  const PackedBatch& pack() const { return pass_.pack; }

  RouterSettings<Real> router_settings() const {
    const std::vector<Real>& bias = pass_.expert_bias[this->index_];
    return {moe().router, moe().top_k, bias.empty() ? nullptr : bias.data()};
  }
  ExpertWeights<Real> expert_weights() const {
    return {weight(kExpertFc1), weight(kExpertFc2), model_.hidden, widths_.expert_fc1,
            moe().hidden};
  }
  auto products(const Dispatch& dispatch, const ExpertWeights<Real>& weights,
                Fp8ExpertOperands* operands, Fp8ExpertGradients* gradients) {
    if constexpr (Precision::kFp8) {
      return Fp8ExpertProducts{*pass_.fp8, this->index_, weights,     dispatch,
                               operands,   gradients,    pass_.mutant};
    } else {
      return PlainExpertProducts<Precision>{dispatch, weights, pass_.mutant};
    }
  }

  static constexpr const char* kForward =
      Precision::kFp8 ? "fp8_linear_forward.y" : "expert_forward.y";
  static constexpr const char* kWeightGradient =
      Precision::kFp8 ? "fp8_linear_weight_gradient.dw" : "expert_weight_gradient.dw";
  static constexpr const char* kInputGradient =
      Precision::kFp8 ? "fp8_linear_input_gradient.dx" : "expert_input_gradient.dx";

  // Tensors for the operands of all experts, made before what their product stores. Only fp8 has
  // such operands.
  Fp8ExpertOperands make_operands(Fp8Layer layer, std::int64_t rows, std::int64_t out,
                                  std::int64_t in) {
    Fp8ExpertOperands made{};
    if constexpr (Precision::kFp8) {
      const auto stored = [&](const std::string& name, std::int64_t count) {
        return Fp8ExpertOperands::Stored{&make(name + "_amax", 1, moe().experts),
                                         &make(name + "_k", 1, moe().experts),
                                         &make(name + "8", count, in)};
      };
      const std::string name = word(layer);
      made.x = stored(name + ".x", rows);
      made.w = stored(name + ".w", moe().experts * out);
    }
    return made;
  }
  // The codes of a matrix, transposed: each part of equally many rows by itself, or the experts'
  // rows one behind the other, each expert's from a multiple of 16 on.
  static Matrix<std::uint8_t> parts_transposed(const Matrix<float>& codes, std::int64_t parts) {
    const std::int64_t rows = codes.rows / parts;
    Matrix<std::uint8_t> to(parts * codes.cols, rows);
    for (std::int64_t i = 0; i < codes.rows; ++i) {
      for (std::int64_t k = 0; k < codes.cols; ++k)
        to.row(i / rows * codes.cols + k)[i % rows] = static_cast<std::uint8_t>(codes.row(i)[k]);
    }
    return to;
  }
  template <class Number>
  static Matrix<std::uint8_t> rows_transposed(const Dispatch& dispatch,
                                              const Matrix<Number>& codes) {
    const auto up = [](std::int64_t rows) { return (rows + 15) / 16 * 16; };
    const auto experts = static_cast<std::int64_t>(dispatch.rows.size());
    Matrix<std::uint8_t> to(codes.cols, up(codes.rows) + 16 * (experts - 1));
    std::int64_t place = 0;
    for (std::size_t e = 0; e < dispatch.rows.size(); ++e) {
      for (std::int64_t i = 0; i < dispatch.rows[e]; ++i) {
        const Number* const row = codes.row(dispatch.first[e] + i);
        for (std::int64_t k = 0; k < codes.cols; ++k)
          to.row(k)[place + i] = static_cast<std::uint8_t>(row[k]);
      }
      place += up(dispatch.rows[e]);
    }
    return to;
  }
  void wrote_operands(const Dispatch& dispatch, const Fp8ExpertOperands& operands) const {
    if constexpr (Precision::kFp8) {
      for (const auto* one : {&operands.x, &operands.w}) {
        wrote("fp8_amax.amax", *one->amaxes);
        wrote("fp8_exponent.k", *one->exponents);
        wrote("fp8_cast.codes", *one->codes);
      }
      wrote("fp8_cast.transposed", rows_transposed(dispatch, *operands.x.codes));
      wrote("fp8_cast.transposed", parts_transposed(*operands.w.codes, moe().experts));
    }
  }
  // Takes note of what the backward pass leaves of an operand dY [buffer rows, out].
  void leave(Fp8Layer layer, const Dispatch& dispatch, std::int64_t out,
             const Fp8ExpertGradients& dy) const {
    if constexpr (Precision::kFp8) {
      Fp8Product(*pass_.fp8, this->index_, layer).leave(dy.amaxes, dy.exponents);
      wrote("fp8_amax.amax", 1, dy.amaxes);
      wrote("fp8_exponent.k", 1, dy.exponents);
      Matrix<std::uint8_t> codes(dispatch.buffer, out);
      for (std::size_t e = 0; e < dy.operands.size(); ++e) {
        const std::vector<std::uint8_t>& own = dy.operands[e].codes.values;
        std::copy(own.begin(), own.end(), codes.row(dispatch.first[e]));
      }
      wrote("fp8_cast.codes", codes);
      wrote("fp8_cast.transposed", rows_transposed(dispatch, codes));
    }
  }

  // What the router stores is fp32 in every numerics.
  static void keep(Matrix<Real>& stored) {
    for (Real& value : stored.values) value = Precision::kept(value);
  }
  // The experts are chosen first: so the forward and the backward pass choose the same ones, from
  // logits that are stored once, however what follows from them is rounded.
  void keep_routing(Routing<Real>& routing) const {
    keep(routing.softmax);
    if (moe().router == Router::softmax) {
      routing.scores = routing.softmax;
    } else {
      keep(routing.scores);
    }
    keep(routing.weights);
  }

  Routed route_rows(const Matrix<Real>& logits) const {
    const Mutant mutant = pass_.mutant;
    const PackedBatch all = own_rows(logits.rows);
    const PackedBatch& routed = mutant("moe-routes-padding-rows") ? all : pack();
    Routed to;
    to.routing = route(routed, router_settings(), logits, mutant);
    keep_routing(to.routing);
    const std::int64_t rows =
        mutant("moe-capacity-counts-rows-of-documents") ? to.routing.rows : logits.rows;
    to.dispatch = dispatch(routed, to.routing, expert_capacity(moe(), rows, mutant),
                           moe().pad_to_capacity, mutant);
    to.balance =
        balance(moe(), to.routing,
                mutant("moe-aux-loss-counts-after-dropping") ? to.dispatch.rows : to.routing.chosen,
                mutant("moe-losses-forget-the-microbatches") ? Real(1) : pass_.inv_m, mutant);
    if (mutant("moe-weights-are-renormalised-after-dropping")) renormalise_kept(to);
    return to;
  }
  // Used by the planted error of this name only.
  void renormalise_kept(Routed& routed) const {
    for (std::int64_t i = 0; i < routed.routing.weights.rows; ++i) {
      Real sum = 0;
      Real* weights = routed.routing.weights.row(i);
      const std::int64_t* place = routed.dispatch.place.row(i);
      for (std::int64_t s = 0; s < moe().top_k; ++s)
        sum = place[s] == kDropped ? sum : add(sum, weights[s]);
      for (std::int64_t s = 0; s < moe().top_k && sum > 0; ++s) weights[s] = div(weights[s], sum);
    }
  }

  void wrote_balance(const Balance<Real>& balance) const {
    std::vector<Real> slopes = balance.slope;
    slopes.resize(moe().experts);
    slopes.push_back(balance.z_scale);
    wrote("router_loss.slopes", 1, slopes);
    wrote("router_loss.losses", 1, std::vector<Real>{balance.aux_loss, balance.z_loss});
  }
  void report(const Routed& routed) {
    ExpertStatistics<Real> entry{this->index_, routed.balance.aux_loss, routed.balance.z_loss,
                                 routed.routing.chosen, routed.routing.chosen};
    for (std::size_t e = 0; e < entry.dropped.size(); ++e)
      entry.dropped[e] -= routed.dispatch.rows[e];
    pass_.experts.push_back(std::move(entry));
  }

  const Matrix<Real>& shared_forward(const Matrix<Real>& x) {
    const Matrix<Real>& h = product("shared_fc1", x, kSharedFc1, widths_.shared_fc1);
    Matrix<Real>& a = make("shared_act", moe().shared_hidden);
    activation<Precision>(pack(), model_.mlp.activation, h, a, pass_.mutant);
    wrote("activation_forward.a", a);
    return product("shared_out", a, kSharedFc2, model_.hidden);
  }
  Matrix<Real> shared_backward(const Matrix<Real>& x, const Matrix<Real>& d_out) {
    const Matrix<Real> da = product_backward(saved("shared_act"), d_out, kSharedFc2);
    const Matrix<Real> dh = activation_gradient<Precision>(pack(), model_.mlp.activation,
                                                           saved("shared_fc1"), da, pass_.mutant);
    wrote("activation_backward.dh", dh);
    return product_backward(x, dh, kSharedFc1);
  }
};

}  // namespace lockstep::oracle
