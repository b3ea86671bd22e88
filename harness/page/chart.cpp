#include "harness/page/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "harness/page/html_text.h"
#include "harness/page/svg.h"

namespace lockstep {
namespace {

constexpr double kWidth = 760, kHeight = 330, kLeft = 66, kRight = 54, kTop = 34, kBottom = 52;
constexpr int kLines = 5;

// Short: "0.5", "12", "1500".
std::string tick_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// The least of 1, 2, 2.5, 5 and 10 times a power of ten by which `lines` steps reach `most`.
double step_for(double most, int lines) {
  if (!(most > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(most / lines)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power * lines >= most) return factor * power;
  }
  return 10 * power;
}

class Frame {
 public:
  explicit Frame(const Chart& chart) : chart_(chart) {
    bool any = false;
    const auto take = [&](double x) {
      least_ = any ? std::min(least_, x) : x;
      most_ = any ? std::max(most_, x) : x;
      any = true;
    };
    double top = 0;
    for (const ChartCurve& curve : chart.curves) {
      for (const auto& [x, y] : curve.points) take(x), top = std::max(top, y);
    }
    for (const ChartColumn& column : chart.columns) {
      take(column.x);
      most_share_ = std::max(most_share_, column.share);
    }
    if (!chart.log_x) least_ = std::min(least_, 0.0);
    y_step_ = step_for(top, kLines);
    share_step_ = step_for(most_share_, kLines);
    is_empty_ = !any;
  }
  bool is_empty() const { return is_empty_; }
  double x(double value) const {
    const double width = kWidth - kLeft - kRight - 24;
    const double from = place(least_), to = place(most_);
    return kLeft + 12 + (to > from ? width * (place(value) - from) / (to - from) : width / 2);
  }
  double y(double value) const { return bottom() - height() * value / (y_step_ * kLines); }
  double share_y(double share) const {
    return bottom() - height() * share / (share_step_ * kLines);
  }
  static double bottom() { return kHeight - kBottom; }
  static double height() { return kHeight - kBottom - kTop; }

  std::string axes() const {
    std::string out;
    for (int i = 0; i <= kLines; ++i) {
      const double at = bottom() - height() * i / kLines;
      out += svg_line(i == 0 ? "axis" : "grid", kLeft, at, kWidth - kRight, at);
      if (!chart_.curves.empty())
        out += svg_label("side end", kLeft - 6, at + 4, tick_text(y_step_ * i));
      if (!chart_.columns.empty())
        out +=
            svg_label("side", kWidth - kRight + 6, at + 4, tick_text(100 * share_step_ * i) + " %");
    }
    for (const double value : ticks())
      out += svg_label("side middle", x(value), bottom() + 18, tick_text(value));
    out += svg_label("side middle", (kLeft + kWidth - kRight) / 2, kHeight - 12, chart_.x_name);
    out += svg_label("side", 0, 14, chart_.y_name);
    return out + svg_label("side end", kWidth, 14, chart_.column_name);
  }

 private:
  double place(double value) const {
    return chart_.log_x ? std::log2(std::max(value, 1e-9)) : value;
  }
  std::vector<double> ticks() const {
    std::vector<double> list;
    if (chart_.log_x) {
      double step = 2;  // At most a dozen of them.
      while (std::log(most_ / std::max(least_, 1.0)) / std::log(step) > 12) step *= 2;
      for (double value = 1; value <= most_; value *= step) {
        if (value >= least_) list.push_back(value);
      }
      return list;
    }
    const double step = step_for(most_ - least_, 8);
    for (double value = least_; value <= most_ + step / 1e6; value += step) list.push_back(value);
    return list;
  }

  const Chart& chart_;
  double least_ = 0, most_ = 0, y_step_ = 1, share_step_ = 1, most_share_ = 0;
  bool is_empty_ = true;
};

std::string columns_of(const Chart& chart, const Frame& frame) {
  std::string out;
  const double room = (kWidth - kLeft - kRight) / static_cast<double>(chart.columns.size() + 1);
  const double width = std::clamp(0.7 * room, 2.0, 22.0);
  for (const ChartColumn& one : chart.columns) {
    const double top = frame.share_y(one.share);
    out += svg_rectangle("column", frame.x(one.x) - width / 2, top, width, Frame::bottom() - top,
                         one.title);
  }
  return out;
}

std::string curve_of(const ChartCurve& curve, const Frame& frame) {
  std::string line, dots;
  for (const auto& [x, y] : curve.points) {
    line += (line.empty() ? "M" : "L") + svg_number(frame.x(x)) + " " + svg_number(frame.y(y));
    if (curve.points.size() > 40) continue;
    dots += svg_rectangle("dot " + curve.style, frame.x(x) - 3, frame.y(y) - 3, 6, 6,
                          curve.name + ": " + tick_text(x) + ", " + tick_text(y));
  }
  return svg_path("curve " + curve.style, line) + dots;
}

}  // namespace

std::string chart(const Chart& chart) {
  const Frame frame(chart);
  if (frame.is_empty()) return "";
  std::string body = columns_of(chart, frame) + frame.axes(), legend;
  for (const ChartMark& mark : chart.marks) {
    body += svg_line("chosen", frame.x(mark.x), kTop, frame.x(mark.x), Frame::bottom()) +
            svg_label("chosen middle", frame.x(mark.x), kTop - 4, mark.text);
  }
  for (const ChartCurve& curve : chart.curves) {
    if (curve.points.empty()) continue;
    body += curve_of(curve, frame);
    legend += "<li><span class=\"swatch " + html(curve.style) + "\"></span>" + html(curve.name) +
              "</li>\n";
  }
  if (!chart.columns.empty())
    legend += "<li><span class=\"swatch even\"></span>" + html(chart.column_name) + "</li>\n";
  return svg("chart", kWidth, kHeight, chart.what, body) + "<ul class=\"legend\">\n" + legend +
         "</ul>\n";
}

}  // namespace lockstep
