// Convolution and scan against the plain recurrence in double, and document by document.
#include "kernels/core/fda16.h"
#include "kernels/core/packed_documents.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/scan.h"
#include "tests/kernels/ops/documents.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

template <class Op>
Matrix convolution(const Op& op, const Matrix& x, const Matrix& weight, const Matrix& bias) {
  Matrix y(x.rows, x.cols);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t c = 0; c < x.cols && op.row_document.data[t] >= 0; ++c) {
      double a = bias(0, c);
      for (std::int64_t back = 0; back < weight.cols && back <= op.row_position.data[t]; ++back) {
        a += weight(c, weight.cols - 1 - back) * x(t - back, c);
      }
      y(t, c) = plain::silu(a);
    }
  }
  return y;
}

// A chain of `width` links of at most `size`, then a sigmoid and a product of slope below 1.1.
TEST(Conv, ForwardStaysWithinItsBound) {
  for_cases<ConvForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix x(op.x), weight(op.weight), want = convolution(op, x, weight, Matrix(op.bias));
    const double links = static_cast<double>(weight.cols) + 1,
                 size = links * (1 + plain::largest(weight)) * (1 + plain::largest(x));
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; ++c) {
        ASSERT_TRUE(
            plain::near(op.y.row(t)[c], want(t, c), plain::kUnit * (1.1 * links + 16) * size));
      }
    }
  });
}
TEST(Conv, AddsTheOldestTapFirst) {
  for_cases<ConvForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const std::int64_t width = op.weight.cols;
    for (std::int64_t t = 0; t < op.x.rows; ++t) {
      for (std::int64_t c = 0; c < op.x.cols && op.row_document.data[t] >= 0; ++c) {
        float a = op.bias.data[c];
        for (std::int64_t u = 0; u < width; ++u) {
          const std::int64_t source = t - width + 1 + u;
          const bool inside =
              source >= 0 && op.row_document.data[source] == op.row_document.data[t];
          if (inside) a = fma(op.weight.row(c)[u], op.x.row(source)[c], a);
        }
        ASSERT_EQ(bits(op.y.row(t)[c]), bits(silu(add(a, 0.0f)))) << t << ", " << c;
      }
    }
  });
}
TEST(Conv, BackwardIsTheSlope) {
  for_cases<ConvBackward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    Matrix x(op.x), weight(op.weight), bias(op.bias);
    const Matrix dy(op.dy), dx(op.dx), dweight(op.dweight), dbias(op.dbias);
    const auto loss = [&] {
      return plain::weighted(dy, convolution(op, x, weight, bias), op.row_document.data);
    };
    const double unit = 400 * plain::kUnit;
    plain::expect_slopes(x, dx, op.row_document.data, loss, unit * (1 + plain::largest(dx)), "dx");
    plain::expect_slopes(weight, dweight, nullptr, loss, unit * (1 + plain::largest(dweight)),
                         "dweight");
    plain::expect_slopes(bias, dbias, nullptr, loss, unit * (1 + plain::largest(dbias)), "dbias");
  });
}
template <class T>
class MambaIn : public testing::Test {};
TYPED_TEST_SUITE(MambaIn, plain::Numerics);

TYPED_TEST(MambaIn, ConvSeesOneDocument) {
  for_cases<ConvBackward<TypeParam>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      ConvBackward<TypeParam> one = op;
      one.x = alone.rows_of(op.x), one.dy = alone.rows_of(op.dy), one.dpre = alone.make(op.dpre);
      alone.describe(one);
      const auto dx = alone.make(op.dx);
      one.dx = dx, one.dweight = alone.make(op.dweight.rows, op.dweight.cols),
      one.dbias = alone.make(1, op.dbias.cols);
      run(HostQueue{}, one);
      alone.expect_same(op.dx, dx);
      std::vector<TypeParam> whole(static_cast<std::size_t>(op.x.rows * op.x.cols));
      const ConvForward<TypeParam> forward{.x = op.x,
                                           .weight = op.weight,
                                           .bias = op.bias,
                                           .row_document = op.row_document,
                                           .row_position = op.row_position,
                                           .y = tensor(whole.data(), op.x.rows, op.x.cols)};
      run(HostQueue{}, forward);
      ConvForward<TypeParam> single = forward;
      single.x = one.x;
      alone.describe(single);
      const auto y = alone.make(op.x);
      single.y = y;
      run(HostQueue{}, single);
      alone.expect_same(forward.y, y);
    });
  });
}

// The inputs of a scan, in double.
struct Scan {
  template <class Op>
  explicit Scan(const Op& op)
      : xbc(op.xbc),
        dt(op.dt),
        bias(op.dt_bias),
        a_log(op.a_log),
        d(op.d),
        heads(op.heads),
        groups(op.groups),
        state(op.state),
        width((xbc.cols - 2 * groups * state) / heads),
        start(op.cu_seqlens_padded.data),
        document(op.row_document.data) {}

  // S = exp(dt A) S + dt B x^T; y = C S + D x, token by token. `absolute`: with all terms positive,
  // for error bounds.
  Matrix run(bool absolute = false) const {
    const auto part = [absolute](double v) { return absolute ? std::abs(v) : v; };
    Matrix y(xbc.rows, heads * width);
    std::vector<double> s(static_cast<std::size_t>(state * width));
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t b = heads * width + h / (heads / groups) * state, c = b + groups * state;
      for (std::int64_t t = 0; t < xbc.rows; ++t) {
        if (document[t] < 0) continue;
        if (t == start[document[t]]) std::fill(s.begin(), s.end(), 0.0);
        const double step = std::log1p(std::exp(dt(t, h) + bias(0, h))),
                     keep = std::exp(-std::exp(a_log(0, h)) * step);
        for (std::int64_t p = 0; p < width; ++p) {
          const double x = part(xbc(t, h * width + p));
          double sum = part(d(0, h)) * x;
          for (std::int64_t n = 0; n < state; ++n) {
            double& cell = s[static_cast<std::size_t>(n * width + p)];
            cell = keep * cell + step * part(xbc(t, b + n)) * x;
            sum += part(xbc(t, c + n)) * cell;
          }
          y(t, h * width + p) = sum;
        }
      }
    }
    return y;
  }

  Matrix xbc, dt, bias, a_log, d;
  std::int64_t heads, groups, state, width;
  const std::int32_t* start;
  const std::int32_t* document;
};

// The running sum of dt A is at most Q * 3 * 15; its rounding enters every decay as an absolute
// error of the exponent.
double scan_relative(const Scan& scan, std::int64_t chunk) {
  const double sums = static_cast<double>(chunk) * 45;
  return plain::kUnit * (static_cast<double>(scan.state + chunk) + 40 + 4 * sums);
}

TEST(Scan, ForwardStaysWithinItsBound) {
  for_cases<ScanForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const Scan scan(op);
    const Matrix want = scan.run(), size = scan.run(true);
    for (std::int64_t t = 0; t < want.rows; ++t) {
      for (std::int64_t c = 0; c < want.cols; ++c) {
        ASSERT_TRUE(plain::near(op.y.row(t)[c], want(t, c),
                                scan_relative(scan, op.chunk) * (size(t, c) + 1e-30)))
            << t;
      }
    }
  });
}
// Fitted: the forward's relative error, 8 times, on terms of the gradient's own size.
TEST(Scan, BackwardIsTheSlope) {
  for_cases<ScanBackward<float>>(
      60, 30, [](const auto& op) { return op.xbc.rows <= 90 && op.xbc.cols <= 200; },
      [](const auto& op) {
        run(HostQueue{}, op);
        Scan scan(op);
        const Matrix dy(op.dy), dxbc(op.dxbc), ddt(op.ddt), dbias(op.ddt_bias), da_log(op.da_log),
            dd(op.dd);
        const auto loss = [&] { return plain::weighted(dy, scan.run(), op.row_document.data); };
        const auto bound = [&](const Matrix& x) {
          return (8 * scan_relative(scan, op.chunk) + 1e-6) * (1 + plain::largest(x));
        };
        const std::int32_t* document = op.row_document.data;
        plain::expect_slopes(scan.xbc, dxbc, document, loss, bound(dxbc), "dxbc", 24);
        plain::expect_slopes(scan.dt, ddt, document, loss, bound(ddt), "ddt");
        plain::expect_slopes(scan.bias, dbias, nullptr, loss, bound(dbias), "ddt_bias", 3);
        plain::expect_slopes(scan.a_log, da_log, nullptr, loss, bound(da_log), "da_log", 3);
        plain::expect_slopes(scan.d, dd, nullptr, loss, bound(dd), "dd", 3);
      });
}
// Stores of x dt (or x w), of M or of the state, and of y; the state's stores meet terms that were
// rounded once before.
double scan_bf16_relative(const Scan& scan, std::int64_t chunk) {
  const double length = static_cast<double>(scan.state + chunk + scan.width);
  return 4.1 * plain::kBf16Unit + scan_relative(scan, chunk) + 2 * plain::fda_error(length, 2);
}
TEST(ScanBf16, ForwardStaysWithinItsBound) {
  for_cases<ScanForward<bf16>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const Scan scan(op);
    const Matrix want = scan.run(), size = scan.run(true);
    for (std::int64_t t = 0; t < want.rows; ++t) {
      for (std::int64_t c = 0; c < want.cols && op.row_document.data[t] >= 0; ++c) {
        const double bound = scan_bf16_relative(scan, op.chunk) * (size(t, c) + 1e-30);
        ASSERT_TRUE(plain::near(load(op.y.row(t)[c]), want(t, c), bound)) << t << ", " << c;
      }
    }
  });
}
// 2.8 for one head of one document, as the text writes it, element by element: y [length, P].
std::vector<bf16> written_out_scan(const ScanForward<bf16>& op, std::int64_t first,
                                   std::int64_t length, std::int64_t head) {
  const std::int64_t n = op.state, d_inner = op.xbc.cols - 2 * op.groups * n,
                     width = d_inner / op.heads;
  const std::int64_t b = d_inner + head / (op.heads / op.groups) * n, c = b + op.groups * n;
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return load(op.xbc.row(first + row)[column]);
  };
  const auto dot16 = [](const std::vector<float>& x, const std::vector<float>& y, float start) {
    return fda_chain(kSm90, 0, static_cast<std::int64_t>(x.size()), x.data(), 1, y.data(), 1,
                     start);
  };
  const auto rounded = [](float x) { return load(st<bf16>(x)); };
  const float a = neg(exp(op.a_log.data[head]));
  std::vector<bf16> y;
  std::vector<float> s(static_cast<std::size_t>(n * width));
  for (std::int64_t top = 0; top < length; top += op.chunk) {
    const std::int64_t rows = std::min<std::int64_t>(op.chunk, length - top);
    std::vector<float> dt, cs;
    float sum = 0.0f;
    for (std::int64_t j = 0; j < rows; ++j) {
      dt.push_back(softplus(add(load(op.dt.row(first + top + j)[head]), op.dt_bias.data[head])));
      cs.push_back(sum = fma(dt.back(), a, sum));
    }
    const auto of = [](const std::vector<float>& list, std::int64_t j) {
      return list[static_cast<std::size_t>(j)];
    };
    for (std::int64_t i = 0; i < rows; ++i) {
      std::vector<float> ci, m;
      for (std::int64_t k = 0; k < n; ++k) ci.push_back(at(top + i, c + k));
      for (std::int64_t j = 0; j <= i; ++j) {
        std::vector<float> bj;
        for (std::int64_t k = 0; k < n; ++k) bj.push_back(at(top + j, b + k));
        m.push_back(rounded(mul(dot16(ci, bj, 0.0f), expn(sub(of(cs, i), of(cs, j))))));
      }
      for (std::int64_t p = 0; p < width; ++p) {
        std::vector<float> sp, xd;
        for (std::int64_t k = 0; k < n; ++k) sp.push_back(rounded(of(s, k * width + p)));
        for (std::int64_t j = 0; j <= i; ++j)
          xd.push_back(rounded(mul(at(top + j, head * width + p), of(dt, j))));
        const float inter = mul(dot16(ci, sp, 0.0f), expn(of(cs, i)));
        const float sum_of_both = add(dot16(m, xd, inter), 0.0f);
        y.push_back(st<bf16>(fma(op.d.data[head], at(top + i, head * width + p), sum_of_both)));
      }
    }
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t p = 0; p < width; ++p) {
        std::vector<float> bk, xw;
        for (std::int64_t j = 0; j < rows; ++j) {
          bk.push_back(at(top + j, b + k));
          xw.push_back(rounded(
              mul(at(top + j, head * width + p), mul(expn(sub(sum, of(cs, j))), of(dt, j)))));
        }
        float& cell = s[static_cast<std::size_t>(k * width + p)];
        cell = fma(expn(sum), cell, dot16(bk, xw, 0.0f));
      }
    }
  }
  return y;
}
TEST(ScanBf16, ForwardHasTheBitsOfTheText) {
  for_cases<ScanForward<bf16>>(
      25, 14, [](const auto& op) { return op.xbc.rows <= 90; },
      [](const auto& op) {
        run(HostQueue{}, op);
        for (std::int64_t d = 0; d < slots_of(op); ++d) {
          const std::int64_t first = first_row_of(op, d), length = tokens_of(op, d);
          const std::int64_t width = op.y.cols / op.heads;
          for (std::int64_t h = 0; length > 0 && h < op.heads; ++h) {
            const std::vector<bf16> want = written_out_scan(op, first, length, h);
            for (std::int64_t e = 0; e < length * width; ++e) {
              ASSERT_EQ(op.y.row(first + e / width)[h * width + e % width].bits,
                        want[static_cast<std::size_t>(e)].bits)
                  << "document " << d << ", head " << h << ", row " << e / width;
            }
          }
        }
      });
}
// y is linear in each of x, B and C: the slope of the sum of absolute terms is the size of the
// terms of the gradient. Stores: those of the forward on one side of the product, those of dy e,
// dS, KK and of the result on the other. ddt_bias and da_log go through differences of such sums,
// so their bound is a part of the loss's terms; that of ddt is fitted to the largest. dd is fp32.
TEST(ScanBf16, BackwardStaysWithinItsBound) {
  for_cases<ScanBackward<bf16>>(
      40, 10, [](const auto& op) { return op.xbc.rows <= 90 && op.xbc.cols <= 330; },
      [](const auto& op) {
        run(HostQueue{}, op);
        Scan scan(op), positive(op);
        for (double& x : positive.xbc.values) x = std::abs(x);
        const Matrix dy(op.dy), dxbc(op.dxbc);
        Matrix weight = dy;
        for (double& x : weight.values) x = std::abs(x);
        const std::int32_t* document = op.row_document.data;
        const auto loss = [&] { return plain::weighted(dy, scan.run(), document); };
        const auto all = [&] { return plain::weighted(weight, positive.run(true), document); };
        plain::Picker pick(scan.xbc.values.size());
        for (int k = 0; k < 16; ++k) {
          const std::int64_t i = pick.below(scan.xbc.rows), c = pick.below(scan.xbc.cols);
          if (document[i] < 0) continue;
          positive.xbc(i, c) +=
              1;  // Away from 0, where the absolute value has no slope; the terms only grow.
          const double size = std::abs(plain::slope(positive.xbc(i, c), all));
          positive.xbc(i, c) -= 1;
          const double bound = (2 * scan_bf16_relative(scan, op.chunk) + 1e-6) * size +
                               1e-7 * (1 + std::abs(loss()));
          ASSERT_TRUE(plain::near(dxbc(i, c), plain::slope(scan.xbc(i, c), loss), bound))
              << i << ", " << c;
        }
        const Matrix ddt(op.ddt), dbias(op.ddt_bias), da_log(op.da_log), dd(op.dd);
        const double unit = plain::kBf16Unit, sums = 3 * unit * all();
        plain::expect_slopes(scan.dt, ddt, document, loss, 12 * unit * (1 + plain::largest(ddt)),
                             "ddt");
        plain::expect_slopes(scan.bias, dbias, nullptr, loss, sums, "ddt_bias", 3);
        plain::expect_slopes(scan.a_log, da_log, nullptr, loss, sums, "da_log", 3);
        plain::expect_slopes(scan.d, dd, nullptr, loss, 1e-5 * (1 + all()), "dd", 3);
      });
}

TYPED_TEST(MambaIn, ScanSeesOneDocument) {
  for_cases<ScanForward<TypeParam>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      ScanForward<TypeParam> one = op;
      one.xbc = alone.rows_of(op.xbc), one.dt = alone.rows_of(op.dt);
      alone.describe(one);
      const auto y = alone.make(op.y);
      one.y = y;
      run(HostQueue{}, one);
      alone.expect_same(op.y, y);
    });
  });
}
TYPED_TEST(MambaIn, ScanBackwardSeesOneDocument) {
  for_cases<ScanBackward<TypeParam>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      ScanBackward<TypeParam> one = op;
      one.xbc = alone.rows_of(op.xbc), one.dt = alone.rows_of(op.dt), one.dy = alone.rows_of(op.dy);
      one.rows = alone.make(op.rows);
      alone.describe(one);
      const auto dxbc = alone.make(op.dxbc), ddt = alone.make(op.ddt);
      one.dxbc = dxbc, one.ddt = ddt;
      one.ddt_bias = alone.make(1, op.heads), one.da_log = alone.make(1, op.heads),
      one.dd = alone.make(1, op.heads);
      run(HostQueue{}, one);
      alone.expect_same(op.dxbc, dxbc);
      alone.expect_same(op.ddt, ddt);
    });
  });
}

}  // namespace
}  // namespace lockstep
