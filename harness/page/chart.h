// A chart of curves over one axis, with columns behind them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct ChartCurve {
  std::string style;  // "a" to "d", the colours of the style sheet.
  std::string name;   // In the legend.
  std::vector<std::pair<double, double>> points = {};
};
// A share of all at `x`, drawn against an axis of per cents of its own.
struct ChartColumn {
  double x = 0, share = 0;
  std::string title;
};
struct ChartMark {
  double x = 0;
  std::string text;
};

struct Chart {
  std::string what;  // For who cannot see it.
  std::string x_name, y_name, column_name;
  bool log_x = false;
  std::vector<ChartCurve> curves = {};
  std::vector<ChartColumn> columns = {};
  std::vector<ChartMark> marks = {};
};
// SVG and its legend. "" where there is no point and no column.
std::string chart(const Chart& chart);

}  // namespace lockstep
