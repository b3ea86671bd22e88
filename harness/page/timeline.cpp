#include "harness/page/timeline.h"

#include <algorithm>
#include <map>
#include <vector>

#include "harness/page/html_text.h"
#include "harness/page/svg.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

constexpr double kLeft = 92, kWidth = 960, kLane = 34, kBar = 22, kTop = 46;
constexpr int kMostItems = 4000;

struct Place {
  double begin = 0, end = 0;
};

bool is_copy(const TraceItem& item) { return item.what == "copy"; }

double width_of(const TraceItem& item, std::int64_t largest) {
  if (!is_copy(item) || largest == 0) return 1;
  return 1 + 3 * static_cast<double>(item.bytes) / static_cast<double>(largest);
}

// Each item begins when the one before it on its stream and all that it waits for are over. A
// replay begins with its launch, and what follows it on its stream waits for all of it.
class Layout {
 public:
  explicit Layout(const Trace& trace) : trace_(trace), places_(trace.items.size()) {
    for (const TraceItem& item : trace.items) {
      if (is_copy(item)) largest_ = std::max(largest_, item.bytes);
    }
    std::map<int, std::vector<int>> waits;
    for (const TraceFlow& flow : trace.flows) {
      if (flow.from < flow.to) waits[flow.to].push_back(flow.from);
    }
    for (int i = 0; i < static_cast<int>(places_.size()); ++i) place(i, waits[i]);
  }
  const Place& of(int item) const { return at(places_, item); }

 private:
  void place(int number, const std::vector<int>& waits) {
    const TraceItem& item = at(trace_.items, number);
    double begin = over_[item.stream];
    for (const int earlier : waits) begin = std::max(begin, at(places_, earlier).end);
    if (item.launch < 0) {
      begin = std::max(begin, launched_[item.stream]);
    } else {
      const int stream = at(trace_.launches, item.launch).stream;
      const auto [start, is_first] = starts_.try_emplace(item.launch, 0);
      if (is_first) start->second = std::max(over_[stream], launched_[stream]);
      begin = std::max(begin, start->second);
    }
    const double end = begin + width_of(item, largest_);
    at(places_, number) = {begin, end};
    over_[item.stream] = end;
    if (item.launch >= 0) {
      double& whole = launched_[at(trace_.launches, item.launch).stream];
      whole = std::max(whole, end);
    }
  }

  const Trace& trace_;
  std::vector<Place> places_;
  std::map<int, double> over_, launched_;  // By stream.
  std::map<int, double> starts_;           // By launch.
  std::int64_t largest_ = 0;
};

bool is_drawn(const Trace& trace, const TraceItem& item, int step) {
  return item.what != "release" && item.place.step == step &&
         at(trace.streams, item.stream).rank == 0;
}

int last_step(const Trace& trace) {
  int step = -1;
  for (const TraceItem& item : trace.items) {
    if (item.launch < 0 && item.what != "release") step = std::max(step, item.place.step);
  }
  return step;
}

std::string title_of(const TraceItem& item) {
  std::string text = item.what;
  if (!item.tensor.empty()) text += " of " + item.tensor;
  if (item.bytes > 0) text += ", " + std::to_string(item.bytes) + " bytes";
  const StepLocation& place = item.place;
  if (place.microbatch >= 0) text += ", microbatch " + std::to_string(place.microbatch);
  if (place.layer >= 0) text += ", layer " + std::to_string(place.layer);
  if (*place.part) text += std::string(", ") + place.part;
  if (place.backward) text += ", backward";
  return text + (item.launch >= 0 ? ", in a graph" : "");
}

// The simulator makes an exchange of copies and sums on the streams of its exchanges.
const char* style_of(const Trace& trace, const TraceItem& item) {
  const std::string& stream = at(trace.streams, item.stream).name;
  if (stream == "gather" || stream == "reduce") return "exchange";
  if (is_copy(item)) return "copy";
  return item.launch >= 0 ? "op replayed" : "op";
}

// The items of one step with those of the replays that it launched, which carry the step of their
// capture.
std::vector<int> items_of(const Trace& trace, int step) {
  std::vector<int> list;
  int first = -1, last = -1;
  for (int i = 0; i < static_cast<int>(trace.items.size()); ++i) {
    const TraceItem& item = at(trace.items, i);
    if (item.launch < 0 && is_drawn(trace, item, step)) first = first < 0 ? i : first, last = i;
  }
  for (int i = std::max(first, 0); i <= last; ++i) {
    const TraceItem& item = at(trace.items, i);
    const bool replayed = item.launch >= 0 && at(trace.streams, item.stream).rank == 0;
    if (is_drawn(trace, item, step) || (replayed && item.what != "release")) list.push_back(i);
  }
  return list;
}

// From the first to the last item of a microbatch's pass.
struct Pass {
  double begin = 0, end = 0;
};

}  // namespace

std::string timeline(const Trace& trace) {
  const int step = last_step(trace);
  std::vector<int> items = items_of(trace, step);
  if (items.empty()) return "";
  const bool is_cut = static_cast<int>(items.size()) > kMostItems;
  if (is_cut) items.resize(kMostItems);
  const Layout layout(trace);
  double begin = layout.of(items.front()).begin, end = begin;
  std::map<int, int> lanes;  // By stream, in their own order.
  for (const int i : items) {
    begin = std::min(begin, layout.of(i).begin);
    end = std::max(end, layout.of(i).end);
    lanes.emplace(at(trace.items, i).stream, 0);
  }
  int lane = 0;
  for (auto& [stream, number] : lanes) number = lane++;
  const double scale = (kWidth - kLeft) / std::max(end - begin, 1.0);
  const auto x = [&](double at) { return kLeft + scale * (at - begin); };
  std::string body;
  for (const auto& [stream, number] : lanes) {
    const double y = kTop + kLane * number;
    body += svg_label("side here", 0, y + 15, shortened(at(trace.streams, stream).name, 14)) +
            svg_line("lane", kLeft, y + kBar / 2, kWidth, y + kBar / 2);
  }
  std::map<std::pair<int, bool>, Pass> passes;
  for (const int i : items) {
    const TraceItem& item = at(trace.items, i);
    const Place& place = layout.of(i);
    body +=
        svg_rectangle(style_of(trace, item), x(place.begin), kTop + kLane * lanes[item.stream],
                      std::max(1.0, scale * (place.end - place.begin) - 0.3), kBar, title_of(item));
    // Replays carry the microbatch of their capture.
    if (is_copy(item) || item.place.microbatch < 0 || item.launch >= 0) continue;
    const auto [pass, is_new] = passes.try_emplace({item.place.microbatch, item.place.backward},
                                                   Pass{place.begin, place.end});
    pass->second.end = std::max(pass->second.end, place.end);
  }
  bool is_odd = false;
  for (const auto& [which, pass] : passes) {
    if (scale * (pass.end - pass.begin) < 46) continue;
    const double y = is_odd ? 18 : 38;
    is_odd = !is_odd;
    body += svg_label("side", x(pass.begin), y,
                      (which.second ? "bwd " : "fwd ") + std::to_string(which.first));
  }
  const std::string legend =
      "<ul class=\"legend\">\n<li><span class=\"swatch even\"></span>an op</li>\n"
      "<li><span class=\"swatch odd\"></span>an op of a graph</li>\n"
      "<li><span class=\"swatch marked\"></span>a copy, wider with its bytes</li>\n"
      "<li><span class=\"swatch c\"></span>an exchange between ranks</li>\n</ul>\n";
  return svg("timeline", kWidth + 4, kTop + kLane * lane + 4,
             "the streams of a step beside each other", body) +
         legend +
         element("p", "note",
                 "Step " + std::to_string(step) +
                     " of rank 0, each item as early as its stream and the events allow. Widths "
                     "are no times." +
                     (is_cut ? " Only the first " + std::to_string(kMostItems) + " items." : "")) +
         "\n";
}

}  // namespace lockstep
