#include "harness/page/hazard_picture.h"

#include <algorithm>
#include <utility>

#include "harness/page/html_text.h"
#include "harness/page/svg.h"

namespace lockstep {
namespace {

constexpr double kWidth = 640, kBoxWidth = 236, kBoxHeight = 52, kLane = 112, kTop = 24;
constexpr double kBarLeft = 84, kBarWidth = kWidth - kBarLeft - 4, kBarHeight = 14;
constexpr std::int64_t kMostRows = 64;  // Drawn each by itself; more are one block.
constexpr std::size_t kLetters = 36;    // A line in a box.

std::string stream_text(const HazardSide& side) {
  const bool host = side.stream.starts_with("the host");
  const std::string name = host ? side.stream : "stream " + side.stream;
  const bool says_rank = side.stream.find("rank") != std::string::npos;
  return name + (side.rank > 0 && !says_rank ? ", rank " + std::to_string(side.rank) : "");
}

std::string access_text(const HazardSide& side) {
  return side.access + (side.operand.empty() ? "" : " " + side.operand);
}

std::string whole_text(const HazardSide& side) {
  std::string text = side.work + ", " + stream_text(side) + ", " + access_text(side);
  if (!side.place.empty()) text += ", " + side.place;
  if (!side.replay.empty()) text += ", " + side.replay;
  return text;
}

std::string access_box(const HazardSide& side, const char* style, double x, double y) {
  const std::string title = whole_text(side);
  std::string place = side.place;
  if (!side.replay.empty()) place += (place.empty() ? "" : "; ") + side.replay;
  return svg_rectangle(std::string("access ") + style, x, y, kBoxWidth, kBoxHeight, title) +
         svg_label("work", x + 8, y + 16, shortened(side.work, kLetters - 6)) +
         svg_label("side", x + 8, y + 31, shortened(access_text(side), kLetters)) +
         svg_label("side", x + 8, y + 45, shortened(place, kLetters));
}

std::string lane(const HazardSide& side, double y) {
  return svg_label("side here", 0, y - 6, shortened(stream_text(side), 80)) +
         svg_line("lane", 0, y + kBoxHeight / 2, kWidth, y + kBoxHeight / 2);
}

// The earlier access, the later one, and the arrow that no call makes.
std::string two_lanes(const HazardRecord& hazard) {
  const HazardSide& earlier = *hazard.earlier;
  const double first = kTop, second = kTop + kLane, right = kWidth - kBoxWidth - 40;
  const double from = 24 + kBoxWidth, middle = kBoxHeight / 2;
  std::string out = lane(earlier, first) + lane(hazard.later, second);
  const double start = from + (hazard.event >= 0 ? 26 : 0), y1 = first + middle, x2 = right - 8,
               y2 = second + middle;
  out += svg_line("edge missing", start, y1, x2, y2) +
         svg_path("arrow", "M" + svg_number(right) + " " + svg_number(y2) + "l-12 -5v10z");
  out += svg_label("missing", start + (hazard.event >= 0 ? 26 : 46), first + middle + 34,
                   hazard.event >= 0
                       ? "missing edge: no wait for event " + std::to_string(hazard.event)
                       : "missing edge: no event, no wait");
  if (hazard.event >= 0) {
    out +=
        svg_path("event",
                 "M" + svg_number(from + 14) + " " + svg_number(y1 - 8) + "l8 8l-8 8l-8 -8z",
                 "event " + std::to_string(hazard.event) + " is recorded here") +
        svg_label("side", from + 28, y1 - 8, "event " + std::to_string(hazard.event) + " recorded");
  }
  return out + access_box(earlier, "earlier", 24, first) +
         access_box(hazard.later, "later", right, second);
}

std::string one_lane(const HazardRecord& hazard) {
  return lane(hazard.later, kTop) + access_box(hazard.later, "later", 24, kTop);
}

std::int64_t last_of(const HazardSide& side) {
  return side.first + std::max<std::int64_t>(side.rows - 1, 0) * side.pitch + side.width;
}

// The part of the allocation that is drawn: both ranges and some bytes around them.
std::pair<std::int64_t, std::int64_t> window_of(const HazardRecord& hazard) {
  std::int64_t begin = hazard.later.first, end = last_of(hazard.later);
  if (hazard.earlier) {
    begin = std::min(begin, hazard.earlier->first);
    end = std::max(end, last_of(*hazard.earlier));
  }
  const std::int64_t size = std::max(hazard.allocation_bytes, end), around = (end - begin) / 4 + 1;
  if (end - begin > size * 6 / 10) return {0, size};
  return {std::max<std::int64_t>(0, begin - around), std::min(size, end + around)};
}

class Bytes {
 public:
  explicit Bytes(const HazardRecord& hazard) : hazard_(hazard), window_(window_of(hazard)) {}

  std::string draw(double y) const {
    std::string out;
    if (hazard_.earlier) out += row(*hazard_.earlier, "earlier", y), y += 22;
    out += row(hazard_.later, "later", y);
    y += 22;
    if (hazard_.earlier) out += common(y), y += 22;
    const auto [begin, end] = window_;
    out += svg_label("side", kBarLeft, y + 8, "byte " + std::to_string(begin));
    out += svg_label("side end", kBarLeft + kBarWidth, y + 8, "byte " + std::to_string(end - 1));
    const std::string memory = "of the " + std::to_string(hazard_.allocation_bytes) + "-byte " +
                               (hazard_.pinned ? "pinned" : "device") + " allocation " +
                               std::to_string(hazard_.allocation);
    return out + svg_label("side middle", kBarLeft + kBarWidth / 2, y + 8, memory);
  }
  double height() const { return hazard_.earlier ? 84 : 40; }

 private:
  double x(std::int64_t byte) const {
    const auto [begin, end] = window_;
    const double share = static_cast<double>(byte - begin) /
                         static_cast<double>(std::max<std::int64_t>(end - begin, 1));
    return kBarLeft + kBarWidth * std::clamp(share, 0.0, 1.0);
  }
  std::string block(const char* style, std::int64_t first, std::int64_t end, double y) const {
    return svg_rectangle(std::string("bytes ") + style, x(first), y,
                         std::max(2.0, x(end) - x(first)), kBarHeight,
                         "bytes " + std::to_string(first) + " to " + std::to_string(end - 1));
  }
  std::string row(const HazardSide& side, const char* style, double y) const {
    std::string out = svg_label("side", 0, y + 11, style) +
                      svg_rectangle("memory", kBarLeft, y, kBarWidth, kBarHeight);
    if (side.rows > kMostRows) return out + block(style, side.first, last_of(side), y);
    for (std::int64_t i = 0; i < side.rows; ++i) {
      const std::int64_t first = side.first + i * side.pitch;
      out += block(style, first, first + side.width, y);
    }
    return out;
  }
  // From the first byte of both to the last; where rows have gaps, of their outlines.
  std::string common(double y) const {
    const HazardSide &a = hazard_.later, &b = *hazard_.earlier;
    const std::int64_t first = std::max(a.first, b.first), end = std::min(last_of(a), last_of(b));
    if (first >= end) return "";
    return svg_label("side", 0, y + 11, "both") +
           svg_rectangle("memory", kBarLeft, y, kBarWidth, kBarHeight) +
           block("both", first, end, y);
  }

  const HazardRecord& hazard_;
  const std::pair<std::int64_t, std::int64_t> window_;
};

}  // namespace

std::string hazard_picture(const HazardRecord& hazard) {
  if (hazard.later.work.empty() || hazard.kind == "destroyed while in use") return "";
  const bool two = hazard.earlier && hazard.kind != "overlapping operands";
  std::string body = two ? two_lanes(hazard) : one_lane(hazard);
  double height = kTop + kBoxHeight + (two ? kLane : 0) + 16;
  if (hazard.later.rows > 0 && hazard.allocation >= 0) {
    const Bytes bytes(hazard);
    body += bytes.draw(height);
    height += bytes.height();
  }
  return svg("hazard", kWidth, height, hazard.kind + ": the accesses and their bytes", body);
}

std::string hazard_legend() {
  const auto swatch = [](const char* style, const char* text) {
    return "<li><span class=\"swatch " + std::string(style) + "\"></span>" + html(text) + "</li>\n";
  };
  return "<ul class=\"legend\">\n" + swatch("earlier", "what the program meant to be first") +
         swatch("later", "what may run before it is over") +
         swatch("both", "the bytes that both touch") +
         swatch("missing", "the order that no event, wait or graph edge makes") + "</ul>\n";
}

}  // namespace lockstep
