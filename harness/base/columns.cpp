#include "harness/base/columns.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace lockstep {
namespace {

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

// At least one blank is before it.
std::string right(const std::string& text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 1, ' ') + text;
}

}  // namespace

Columns::Columns(std::vector<Column> columns, const Terminal& terminal)
    : columns_(std::move(columns)), terminal_(terminal) {
  std::size_t sum = 0;
  for (const Column& one : columns_) sum += one.width;
  is_narrow_ = terminal.width > 0 && sum > terminal.width;
  if (!is_narrow_) return;
  for (Column& one : columns_) {
    if (!one.narrow_heading.empty()) one.heading = one.narrow_heading;
    if (one.narrow_width > 0) one.width = one.narrow_width;
  }
}

std::string Columns::head(const std::string& note) const {
  std::vector<std::string> headings;
  for (const Column& one : columns_) headings.push_back(one.heading);
  return row(headings, note);
}

std::string Columns::row(const std::vector<std::string>& cells, const std::string& note) const {
  const std::size_t first = columns_.front().width;
  const std::string indent(first, ' ');
  const bool fits = terminal_.width == 0 || cells.front().size() <= first;
  std::string out = fits ? "" : cells.front() + "\n",
              line = fits ? left(cells.front(), first) : indent;
  const auto has_room = [&](std::size_t size) {
    return terminal_.width == 0 || line == indent || line.size() + size <= terminal_.width;
  };
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const std::string cell = right(cells[i], columns_.at(i).width);
    if (!has_room(cell.size())) out += std::exchange(line, indent) + "\n";
    line += cell;
  }
  if (note.empty()) return out + line + "\n";
  if (has_room(2 + note.size())) return out + line + "  " + note + "\n";
  return out + line + "\n" +
         fitted(indent + note.substr(note.find_first_not_of(' ')), terminal_, 0);
}

std::string formatted(const char* format, ...) {
  std::va_list first, second;
  va_start(first, format);
  va_copy(second, first);
  std::string text(std::vsnprintf(nullptr, 0, format, first), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, second);
  va_end(first);
  va_end(second);
  return text;
}

void print_fitted(const std::string& text, std::size_t hang) {
  std::fputs(fitted(text, terminal_at(STDOUT_FILENO), hang).c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace lockstep
