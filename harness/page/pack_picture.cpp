#include "harness/page/pack_picture.h"

#include <algorithm>

#include "harness/page/svg.h"

namespace lockstep {
namespace {

constexpr double kLeft = 104, kWidth = 860, kBar = 26, kPitch = 40;
constexpr std::int64_t kMostPacks = 16;
constexpr std::int64_t kAround = 12;  // Rows on each side in the close-up.

// The row of the pack that differs, -1 where the difference is in no row of a pack.
std::int64_t marked_row(const Scenario::Data& data, const Microbatch& pack,
                        const FirstDifference& where) {
  if (where.document < 0) {  // Padding, or not a tensor along the pack's rows.
    const bool along_rows = where.row >= 0 && where.row < data.pack_length;
    return where.op.empty() || !along_rows || where.position >= 0 ? -1 : where.row;
  }
  std::int64_t first = 0;
  for (const Document& document : pack.documents) {
    if (document.number == where.document) return first + where.position;
    first += slot_rows(static_cast<std::int64_t>(document.tokens.size()), data.gaps, data.align);
  }
  return -1;
}

// Runs over the slots of a pack: document, its first row, its rows, the rows of its slot.
template <class Take>
void for_each_slot(const Scenario::Data& data, const Microbatch& pack, Take take) {
  std::int64_t first = 0;
  for (const Document& document : pack.documents) {
    const auto length = static_cast<std::int64_t>(document.tokens.size());
    const std::int64_t rows = slot_rows(length, data.gaps, data.align);
    take(document, first, length, rows);
    first += rows;
  }
}

// One pack as a bar.
std::string bar(const Scenario::Data& data, const Microbatch& pack, const FirstDifference& where,
                bool is_here, double y) {
  const double scale = kWidth / static_cast<double>(data.pack_length);
  const auto x = [&](std::int64_t row) { return kLeft + scale * static_cast<double>(row); };
  std::string out = svg_rectangle("padding", kLeft, y, kWidth, kBar, "rows of no document");
  int place = 0;
  for_each_slot(
      data, pack,
      [&](const Document& document, std::int64_t first, std::int64_t length, std::int64_t rows) {
        const std::string name = "document " + std::to_string(document.number);
        const bool marked = is_here && document.number == where.document;
        if (rows > length)
          out += svg_rectangle("gap", x(first), y, scale * rows, kBar, name + ": gap after it");
        const std::string style = marked ? "doc marked" : place % 2 == 0 ? "doc even" : "doc odd";
        ++place;
        if (length == 0) {
          out += svg_rectangle("empty", x(first) - 1, y - 3, 2, kBar + 6,
                               name + ": empty, a slot without rows");
          return;
        }
        out += svg_rectangle(
            style, x(first), y, scale * static_cast<double>(length), kBar,
            name + ": rows " + std::to_string(first) + " to " + std::to_string(first + length - 1));
        const std::string text = std::to_string(document.number);
        if (scale * static_cast<double>(length) > 8.0 * static_cast<double>(text.size()) + 4) {
          out += svg_label("number", x(first) + scale * static_cast<double>(length) / 2,
                           y + kBar / 2 + 4, text);
        }
      });
  return out;
}

std::string marker(const Scenario::Data& data, std::int64_t row, double y) {
  const double at =
      kLeft + kWidth * (static_cast<double>(row) + 0.5) / static_cast<double>(data.pack_length);
  return svg_path("marker", "M" + svg_number(at) + " " + svg_number(y + 1) + "l-6 -9h12z") +
         svg_line("marker", at, y, at, y + kBar);
}

// The rows around the marked one, each a cell with its position in the document.
std::string close_up(const Scenario::Data& data, const Microbatch& pack, std::int64_t row,
                     double y) {
  const std::int64_t begin = std::max<std::int64_t>(0, row - kAround);
  const std::int64_t end = std::min(data.pack_length, row + kAround + 1);
  const double cell = kWidth / static_cast<double>(2 * kAround + 1);
  std::string out = svg_label("side", 0, y + kBar / 2 + 4,
                              "rows " + std::to_string(begin) + "-" + std::to_string(end - 1));
  const auto draw = [&](std::int64_t at, const std::string& style, const std::string& text,
                        const std::string& title) {
    if (at < begin || at >= end) return;
    const double x = kLeft + cell * static_cast<double>(at - begin);
    out += svg_rectangle(style + (at == row ? " differs" : ""), x + 1, y, cell - 2, kBar, title);
    out += svg_label("number", x + cell / 2, y + kBar / 2 + 4, text);
  };
  std::int64_t next = 0;
  int place = 0;
  for_each_slot(
      data, pack,
      [&](const Document& document, std::int64_t first, std::int64_t length, std::int64_t rows) {
        const std::string name = "document " + std::to_string(document.number);
        const char* style = place++ % 2 == 0 ? "doc even" : "doc odd";
        for (std::int64_t i = std::max<std::int64_t>(0, begin - first);
             i < std::min(rows, end - first); ++i) {
          if (i < length) {
            draw(first + i, style, std::to_string(i), name + ", position " + std::to_string(i));
          } else {
            draw(first + i, "gap", "", name + ": gap after it");
          }
        }
        next = first + rows;
      });
  for (std::int64_t at = std::max(next, begin); at < end; ++at)
    draw(at, "padding", "", "row of no document");
  return out + svg_label("side", kLeft, y + kBar + 16,
                         "close-up: each cell a row, with its position in its document");
}

}  // namespace

std::string pack_picture(const Scenario::Data& data, const StepData& step,
                         const FirstDifference& where) {
  std::string body;
  double y = 16;
  std::int64_t row = -1;
  const Microbatch* here = nullptr;
  for (std::size_t i = 0; i < step.microbatches.size(); ++i) {
    const bool is_here = static_cast<std::int64_t>(i) == where.microbatch;
    if (!is_here && static_cast<std::int64_t>(i) >= kMostPacks) continue;
    const Microbatch& pack = step.microbatches[i];
    body += svg_label(is_here ? "side here" : "side", 0, y + kBar / 2 + 4,
                      "microbatch " + std::to_string(i));
    body += bar(data, pack, where, is_here, y);
    if (is_here) {
      here = &pack;
      row = marked_row(data, pack, where);
      if (row >= 0) body += marker(data, row, y);
    }
    y += kPitch;
  }
  body += svg_label("side", kLeft, y, "row 0");
  body += svg_label("side end", kLeft + kWidth, y, "row " + std::to_string(data.pack_length - 1));
  y += 22;
  if (row >= 0 && data.pack_length > 2 * kAround + 1) {
    body += close_up(data, *here, row, y);
    y += kBar + 26;
  }
  return svg("pack", kLeft + kWidth + 8, y, "the packs of the step", body);
}

}  // namespace lockstep
