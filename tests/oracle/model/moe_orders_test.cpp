// A layer of experts in fp32 and bf16 against arithmetic.md 2.11 written out, one number at a time:
// what the oracle gathers, slices and stacks changes no order.
#include <gtest/gtest.h>

#include "oracle/model/moe.h"
#include "tests/oracle/ops/plain.h"

namespace lockstep::oracle {
namespace {

using Values = std::vector<float>;

template <class F>
float plain_r128(std::int64_t n, F step) {
  Values acc(128), t(32);
  for (std::int64_t e = 0; e < n; ++e) acc[e % 128] = step(e, acc[e % 128]);
  for (int l = 0; l < 32; ++l)
    t[l] = add(add(acc[4 * l], acc[4 * l + 1]), add(acc[4 * l + 2], acc[4 * l + 3]));
  for (int off = 16; off > 0; off /= 2) {
    for (int l = 0; l < off; ++l) t[l] = add(t[l], t[l + off]);
  }
  return add(t[0], 0.0f);
}

template <class F>
float plain_cs(std::int64_t rows, F step) {
  float sum = 0;
  for (std::int64_t first = 0; first < rows; first += 32) {
    float p = 0;
    for (std::int64_t i = first; i < std::min(rows, first + 32); ++i) p = step(i, p);
    sum = add(sum, p);
  }
  return add(sum, 0.0f);
}

// A layer with all that goes into it. Documents at rows 1..20 and 23..39 of 41.
template <class Numbers>
struct Case {
  Scenario scenario;
  Layout layout;
  RopeTable<float> rope;
  PackedBatch pack;
  std::vector<Values> weights, bias, gradients;
  std::vector<ExpertStatistics<float>> statistics;
  Saved<float> saved{1};
  Rows x, d_out;
  float inv_m = div(1.0f, 3.0f);

  explicit Case(const Scenario& given) : scenario(given), layout(make_layout(given.model)) {
    pack.rows = scenario.data.pack_length;
    pack.documents = pack.runs = {{1, 20, 0}, {23, 17, 1}};
    for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
      const ParameterLayout& from = layout.parameters[p];
      const auto seed = static_cast<std::uint32_t>(20 + p);
      const bool copy = from.has_copy();
      weights.push_back((copy ? filled<Numbers>(from.rows, from.cols, seed, 0.5)
                              : filled<Fp32>(from.rows, from.cols, seed, 0.5))
                            .values);
    }
    bias = {given.model.moe.expert_bias ? filled<Fp32>(1, given.model.moe.experts, 5, 0.2).values
                                        : Values()};
    gradients.resize(weights.size());
    x = filled<Numbers>(pack.rows, given.model.hidden, 1, 2.0);
    d_out = filled<Numbers>(pack.rows, given.model.hidden, 2, 1.0);
    for (Rows* rows : {&x, &d_out}) {
      for (std::int64_t i = 0; i < pack.rows; ++i) {
        if (!inside(i)) std::fill_n(rows->row(i), rows->cols, 0.0f);
      }
    }
  }
  static bool inside(std::int64_t i) { return (i >= 1 && i < 21) || (i >= 23 && i < 40); }

  Rows run() {
    Pass<Numbers> pass{scenario.model, layout,    rope,       pack,  weights, bias,
                       inv_m,          gradients, statistics, saved, Mutant()};
    MoeLayer<Numbers> layer(pass, 0);
    layer.forward(x);
    return layer.backward(x, d_out);
  }
};

template <class Numbers>
class Plain {
 public:
  explicit Plain(const Case<Numbers>& c)
      : c_(c),
        model_(c.scenario.model),
        moe_(model_.moe),
        n_(moe_.experts),
        slots_(moe_.top_k),
        d_(model_.hidden),
        rows_(c.pack.rows),
        weights(rows_, slots_),
        out(rows_, d_),
        dx(rows_, d_),
        rows_of_(n_),
        y_(rows_, slots_ * d_),
        dx_(rows_, slots_ * d_),
        dl_(rows_, n_),
        softmax_(rows_, n_),
        scores_(rows_, n_),
        chosen_(rows_, slots_),
        kept_(rows_, slots_),
        lse_(rows_),
        inverse_(rows_) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      if (c.inside(i)) choose_for(i);
    }
    losses();
    for (std::int64_t e = 0; e < n_; ++e) expert(e);
    if (moe_.shared_hidden > 0) shared();
    for (std::int64_t i = 0; i < rows_; ++i) {
      if (c.inside(i)) row(i);
    }
    d_router = Rows(n_, d_);
    for (std::int64_t e = 0; e < n_; ++e) {
      for (std::int64_t k = 0; k < d_; ++k) {
        d_router.row(e)[k] = chain<Fp32>(
            0, rows_, [&](std::int64_t i) { return Factors(dl_.row(i)[e], c.x.row(i)[k]); });
      }
    }
  }

  struct Mlp {
    const float *w1, *w2;
    std::int64_t f;
    std::vector<Values> h, a, dh, dy, x;  // Per row of the expert.
  };

 private:
  const Case<Numbers>& c_;
  const Scenario::Model& model_;
  const Scenario::Model::Moe& moe_;
  std::int64_t n_, slots_, d_, rows_;

 public:
  Rows weights, out, dx, d_router;
  Values d_fc1, d_fc2, d_shared_fc1, d_shared_fc2;
  float aux_loss = 0, z_loss = 0;

 private:
  const float* router(std::int64_t e) const { return c_.weights[2].data() + e * d_; }
  bool gated() const { return model_.mlp.activation == MlpActivation::swiglu; }

  void choose_for(std::int64_t i) {
    Values logit(n_), pe(n_);
    for (std::int64_t e = 0; e < n_; ++e) {
      logit[e] =
          chain<Fp32>(0, d_, [&](std::int64_t k) { return Factors(c_.x.row(i)[k], router(e)[k]); });
    }
    float m = logit[0];
    for (std::int64_t e = 1; e < n_; ++e) m = max(m, logit[e]);
    m = add(m, 0.0f);
    for (std::int64_t e = 0; e < n_; ++e) pe[e] = expn(sub(logit[e], m));
    const float s = plain_r128(n_, [&](std::int64_t e, float acc) { return add(acc, pe[e]); });
    lse_[i] = add(m, log(s));
    std::vector<bool> used(n_);
    for (std::int64_t e = 0; e < n_; ++e) {
      softmax_.row(i)[e] = mul(pe[e], div(1.0f, s));
      scores_.row(i)[e] = moe_.router == Router::softmax ? softmax_.row(i)[e] : sigmoid(logit[e]);
    }
    const auto key = [&](std::int64_t e) {
      return moe_.expert_bias ? add(scores_.row(i)[e], c_.bias[0][e]) : scores_.row(i)[e];
    };
    float sum = 0;
    for (std::int64_t slot = 0; slot < slots_; ++slot) {
      std::int64_t best = -1;
      for (std::int64_t e = 0; e < n_; ++e) {
        if (!used[e] && (best < 0 || key(e) > key(best))) best = e;
      }
      used[best] = true;
      chosen_.row(i)[slot] = best;
      sum = add(sum, scores_.row(i)[best]);
      auto& taken = rows_of_[best];
      const auto capacity = static_cast<std::size_t>(
          moe_.capacity_factor ? std::ceil(moe_.capacity_factor->value() * slots_ * rows_ / n_)
                               : rows_);
      if (taken.size() < capacity) kept_.row(i)[slot] = 1, taken.push_back({i, slot});
    }
    inverse_[i] = div(1.0f, add(sum, 0.0f));
    for (std::int64_t slot = 0; slot < slots_; ++slot) {
      const float p = scores_.row(i)[chosen_.row(i)[slot]];
      weights.row(i)[slot] = slots_ > 1 ? mul(mul(p, inverse_[i]), 1.0f) : mul(p, 1.0f);
    }
  }

  void losses() {
    const float tr = 37, coef = static_cast<float>(moe_.aux_loss.value());
    for (std::int64_t e = 0; e < n_; ++e) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < rows_; ++i) {
        for (std::int64_t s = 0; s < slots_; ++s)
          count += c_.inside(i) && chosen_.row(i)[s] == e ? 1 : 0;
      }
      a_.push_back(mul(static_cast<float>(count),
                       mul(c_.inv_m, div(mul(coef, static_cast<float>(n_)),
                                         mul(mul(tr, static_cast<float>(slots_)), tr)))));
      aux_loss =
          fma(a_[e],
              plain_cs(rows_, [&](std::int64_t i, float p) { return add(p, scores_.row(i)[e]); }),
              aux_loss);
    }
    aux_loss = add(aux_loss, 0.0f);
    cz_ = mul(c_.inv_m, div(static_cast<float>(moe_.z_loss.value()), tr));
    z_loss = mul(
        cz_, plain_cs(rows_, [&](std::int64_t i, float p) { return fma(lse_[i], lse_[i], p); }));
  }

  Values dot_rows(const Values& x, const float* w,
                  std::int64_t outs) const {  // st(DOT of x and the rows of w)
    Values y;
    const auto n = static_cast<std::int64_t>(x.size());
    for (std::int64_t o = 0; o < outs; ++o) {
      y.push_back(Numbers::st(
          chain<Numbers>(0, n, [&](std::int64_t k) { return Factors(x[k], w[o * n + k]); })));
    }
    return y;
  }
  Values dot_columns(const Values& dy, const float* w, std::int64_t ins) const {
    Values dx;
    const auto n = static_cast<std::int64_t>(dy.size());
    for (std::int64_t k = 0; k < ins; ++k) {
      dx.push_back(Numbers::st(
          chain<Numbers>(0, n, [&](std::int64_t o) { return Factors(dy[o], w[o * ins + k]); })));
    }
    return dx;
  }
  static void append_outer(const std::vector<Values>& dy, const std::vector<Values>& x,
                           std::int64_t outs, std::int64_t ins, Values& dw) {
    for (std::int64_t o = 0; o < outs; ++o) {
      for (std::int64_t k = 0; k < ins; ++k) {
        dw.push_back(chain<Numbers>(0, static_cast<std::int64_t>(x.size()),
                                    [&](std::int64_t i) { return Factors(dy[i][o], x[i][k]); }));
      }
    }
  }

  // One row through an MLP; returns y.
  Values forward(Mlp& mlp, std::int64_t i) const {
    const Values x(c_.x.row(i), c_.x.row(i) + d_),
        h = dot_rows(x, mlp.w1, mlp.f * (gated() ? 2 : 1));
    Values a(mlp.f);
    for (std::int64_t k = 0; k < mlp.f; ++k) {
      a[k] = Numbers::st(gated()    ? mul(silu(h[k]), h[mlp.f + k])
                         : h[k] > 0 ? mul(h[k], h[k])
                                    : 0.0f);
    }
    mlp.x.push_back(x);
    mlp.h.push_back(h);
    mlp.a.push_back(a);
    return dot_rows(a, mlp.w2, d_);
  }
  // The gradient of the last row's input.
  Values backward(Mlp& mlp, const Values& dy) const {
    const Values da = dot_columns(dy, mlp.w2, mlp.f), &h = mlp.h.back();
    Values dh(h.size());
    for (std::int64_t k = 0; k < mlp.f; ++k) {
      if (gated()) {
        dh[k] = Numbers::st(mul(mul(da[k], h[mlp.f + k]), dsilu(h[k])));
        dh[mlp.f + k] = Numbers::st(mul(da[k], silu(h[k])));
      } else {
        dh[k] = Numbers::st(h[k] > 0 ? mul(mul(2.0f, h[k]), da[k]) : 0.0f);
      }
    }
    mlp.dh.push_back(dh);
    mlp.dy.push_back(dy);
    return dot_columns(dh, mlp.w1, d_);
  }
  void weight_gradients(const Mlp& mlp, Values& d1, Values& d2) const {
    append_outer(mlp.dh, mlp.x, mlp.f * (gated() ? 2 : 1), d_, d1);
    append_outer(mlp.dy, mlp.a, d_, mlp.f, d2);
  }

  void expert(std::int64_t e) {
    const std::int64_t f = moe_.hidden, wide = f * (gated() ? 2 : 1);
    Mlp mlp{c_.weights[3].data() + e * wide * d_,
            c_.weights[4].data() + e * d_ * f,
            f,
            {},
            {},
            {},
            {},
            {}};
    for (const auto& [i, slot] : rows_of_[e]) {
      const Values y = forward(mlp, i);
      Values dy(d_);
      for (std::int64_t k = 0; k < d_; ++k)
        dy[k] = Numbers::st(mul(weights.row(i)[slot], c_.d_out.row(i)[k]));
      const Values dxs = backward(mlp, dy);
      std::copy(y.begin(), y.end(), y_.row(i) + slot * d_);
      std::copy(dxs.begin(), dxs.end(), dx_.row(i) + slot * d_);
    }
    weight_gradients(mlp, d_fc1, d_fc2);
  }

  void shared() {
    Mlp mlp{c_.weights[5].data(), c_.weights[6].data(), moe_.shared_hidden, {}, {}, {}, {}, {}};
    for (std::int64_t i = 0; i < rows_; ++i) {
      shared_y_.push_back(forward(mlp, i));  // Rows of no document are zeros, and give zeros.
      shared_dx_.push_back(backward(mlp, Values(c_.d_out.row(i), c_.d_out.row(i) + d_)));
    }
    weight_gradients(mlp, d_shared_fc1, d_shared_fc2);
  }

  void row(std::int64_t i) {
    const bool with_shared = moe_.shared_hidden > 0;
    for (std::int64_t k = 0; k < d_; ++k) {
      float c = 0;
      for (std::int64_t s = 0; s < slots_; ++s) {
        if (kept_.row(i)[s]) c = fma(weights.row(i)[s], y_.row(i)[s * d_ + k], c);
      }
      c = add(c, 0.0f);
      if (with_shared) c = add(c, shared_y_[i][k]);
      out.row(i)[k] = Numbers::st(c);
    }
    const Values dl = logit_gradient_of(i);
    std::copy(dl.begin(), dl.end(), dl_.row(i));
    for (std::int64_t k = 0; k < d_; ++k) {
      float c = 0;
      for (std::int64_t s = 0; s < slots_; ++s) {
        if (kept_.row(i)[s]) c = add(c, dx_.row(i)[s * d_ + k]);
      }
      if (with_shared) c = add(c, shared_dx_[i][k]);
      c = add(c, chain<Fp32>(0, n_, [&](std::int64_t e) { return Factors(dl[e], router(e)[k]); }));
      dx.row(i)[k] = Numbers::st(add(c, 0.0f));
    }
  }

  Values logit_gradient_of(std::int64_t i) const {
    Values dw(slots_), dp(n_), dl(n_);
    for (std::int64_t s = 0; s < slots_; ++s) {
      if (!kept_.row(i)[s]) continue;
      dw[s] = plain_r128(d_, [&](std::int64_t k, float acc) {
        return fma(c_.d_out.row(i)[k], y_.row(i)[s * d_ + k], acc);
      });
    }
    const auto p_of = [&](std::int64_t s) { return scores_.row(i)[chosen_.row(i)[s]]; };
    float t = 0;
    for (std::int64_t s = 0; s < slots_; ++s) t = fma(dw[s], mul(p_of(s), inverse_[i]), t);
    t = add(t, 0.0f);
    for (std::int64_t s = 0; s < slots_; ++s) {
      dp[chosen_.row(i)[s]] =
          slots_ > 1 ? mul(mul(1.0f, inverse_[i]), sub(dw[s], t)) : mul(1.0f, dw[s]);
    }
    for (std::int64_t e = 0; e < n_; ++e)
      dp[e] = moe_.aux_loss.millionths > 0 ? add(dp[e], a_[e]) : dp[e];
    const float* p = scores_.row(i);
    const float mean =
        plain_r128(n_, [&](std::int64_t e, float acc) { return fma(dp[e], p[e], acc); });
    for (std::int64_t e = 0; e < n_; ++e) {
      dl[e] = moe_.router == Router::softmax ? mul(p[e], sub(dp[e], mean))
                                             : mul(dp[e], mul(p[e], sub(1.0f, p[e])));
      if (moe_.z_loss.millionths > 0)
        dl[e] = fma(mul(mul(2.0f, cz_), lse_[i]), softmax_.row(i)[e], dl[e]);
    }
    return dl;
  }

  struct Pair {
    std::int64_t row, slot;
  };
  std::vector<std::vector<Pair>> rows_of_;  // Per expert, in the order of priority.
  Rows y_, dx_, dl_;                        // y_, dx_: per slot of a row.
  Rows softmax_, scores_;
  Matrix<std::int64_t> chosen_, kept_;
  Values lse_, inverse_, a_;
  std::vector<Values> shared_y_, shared_dx_;
  float cz_ = 0;
};

template <class Numbers>
void expect_the_sums_written_out(const Scenario& scenario) {
  Case<Numbers> c(scenario);
  const Rows dx = c.run();
  const Plain<Numbers> want(c);
  const auto expect_same = [](const Values& got, const Values& plain, const char* what) {
    EXPECT_TRUE(same_bits(got, plain)) << what;
  };
  EXPECT_TRUE(
      std::any_of(dx.values.begin(), dx.values.end(), [](float value) { return value != 0; }));
  expect_same(c.saved.get(1, "router.weights").values, want.weights.values, "weights");
  expect_same(c.saved.get(1, "proj").values, want.out.values, "out");
  expect_same(dx.values, want.dx.values, "dx");
  expect_same(c.gradients[2], want.d_router.values, "router gradient");
  expect_same(c.gradients[3], want.d_fc1, "fc1 gradient");
  expect_same(c.gradients[4], want.d_fc2, "fc2 gradient");
  if (scenario.model.moe.shared_hidden > 0) {
    expect_same(c.gradients[5], want.d_shared_fc1, "shared fc1 gradient");
    expect_same(c.gradients[6], want.d_shared_fc2, "shared fc2 gradient");
  }
  const ExpertStatistics<float>& entry = c.statistics.at(0);
  EXPECT_EQ(bits(entry.aux_loss),
            scenario.model.moe.aux_loss.millionths > 0 ? bits(want.aux_loss) : 0u);
  EXPECT_EQ(bits(entry.z_loss), scenario.model.moe.z_loss.millionths > 0 ? bits(want.z_loss) : 0u);
}

Scenario experts(std::int64_t count, std::int64_t slots) {
  Scenario scenario;
  scenario.model.pattern = "E";
  scenario.model.hidden = 24;
  scenario.data.pack_length = 41;
  Scenario::Model::Moe& moe = scenario.model.moe;
  moe.experts = count;
  moe.top_k = slots;
  moe.hidden = 24;
  moe.aux_loss = Ratio{130'000};
  moe.z_loss = Ratio{70'000};
  return scenario;
}

void expect_both(const Scenario& scenario) {
  expect_the_sums_written_out<Fp32>(scenario);
  expect_the_sums_written_out<Bf16>(scenario);
}

TEST(experts, have_the_bits_of_the_sums_written_out) {
  Scenario softmax = experts(3, 2);
  softmax.model.moe.capacity_factor = Ratio{700'000};
  softmax.model.moe.shared_hidden = 40;
  expect_both(softmax);
  softmax.model.mlp.activation = MlpActivation::swiglu;
  softmax.model.moe.aux_loss = softmax.model.moe.z_loss = Ratio{0};
  expect_both(softmax);
}

TEST(experts, have_the_bits_of_the_sums_written_out_with_sigmoid_and_bias) {
  Scenario sigmoid = experts(4, 3);
  sigmoid.model.moe.router = Router::sigmoid;
  sigmoid.model.moe.expert_bias = true;
  sigmoid.model.moe.capacity_factor = std::nullopt;
  sigmoid.model.moe.pad_to_capacity = false;
  expect_both(sigmoid);
}

// More experts than a reduction has lanes; a single slot, whose weight is its score.
TEST(experts, have_the_bits_of_the_sums_written_out_when_they_are_many) {
  for (const std::int64_t slots : {1, 5}) {
    Scenario many = experts(150, slots);
    many.model.moe.hidden = 8;
    expect_both(many);
  }
}

Scenario drawn(std::uint32_t seed) {
  Draws numbers(seed);
  const std::int32_t count = 2 + numbers.below(12);
  Scenario scenario = experts(count, 1 + numbers.below(count));
  Scenario::Model::Moe& moe = scenario.model.moe;
  const auto maybe = [&](std::int32_t most) {
    return numbers.next() < 0 ? 0 : numbers.below(most);
  };
  scenario.model.hidden = 1 + numbers.below(40);
  scenario.model.mlp.activation =
      numbers.next() < 0 ? MlpActivation::swiglu : MlpActivation::squared_relu;
  moe.hidden = 1 + numbers.below(40);
  moe.shared_hidden = maybe(40);
  moe.router = numbers.next() < 0 ? Router::softmax : Router::sigmoid;
  moe.expert_bias = moe.router == Router::sigmoid && numbers.next() < 0;
  moe.capacity_factor = Ratio{1 + numbers.below(1'500'000)};
  moe.pad_to_capacity = numbers.next() < 0;
  if (numbers.next() < -0.4) moe.capacity_factor = std::nullopt, moe.pad_to_capacity = false;
  moe.aux_loss = Ratio{maybe(500'000)};
  moe.z_loss = Ratio{maybe(500'000)};
  return scenario;
}

TEST(experts, have_the_bits_of_the_sums_written_out_whatever_the_settings) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_both(drawn(seed));
  }
}

}  // namespace
}  // namespace lockstep::oracle
