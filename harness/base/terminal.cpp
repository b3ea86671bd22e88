#include "harness/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::size_t kUsualWidth = 80, kLeastWidth = 40, kMostWidth = 120;

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool is_command(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line.starts_with("replay: ") || line.starts_with("lockstep ");
}

std::string fitted_line(const std::string& line, std::size_t width, std::size_t hang) {
  if (line.size() <= width || is_command(line)) return line;
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::string out(indent, ' ');
  std::size_t used = indent;
  for (std::size_t at = indent, begin; at < line.size();) {
    begin = std::min(line.find_first_not_of(' ', at), line.size());
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (at > indent && used + end - at > width) {  // The blanks end the line with it.
      out += "\n" + std::string(indent + hang, ' ');
      used = indent + hang;
      at = begin;
    }
    out += line.substr(at, end - at);
    used += end - at;
    at = end;
  }
  return out;
}

}  // namespace

Terminal terminal_at(int descriptor) {
  if (::isatty(descriptor) != 1) return {};
  const char* kind = std::getenv("TERM");
  Terminal terminal{.colours = !is_set("NO_COLOR") && !(kind && std::string_view(kind) == "dumb"),
                    .width = kUsualWidth};
  struct winsize size {};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    terminal.width = std::clamp<std::size_t>(size.ws_col, kLeastWidth, kMostWidth);
  return terminal;
}

std::string coloured(const std::string& text, Colour colour, const Terminal& terminal) {
  if (!terminal.colours) return text;
  const char* code = colour == Colour::red ? "31" : colour == Colour::green ? "32" : "33";
  return std::string("\033[") + code + "m" + text + "\033[0m";
}

std::string fitted(const std::string& text, const Terminal& terminal, std::size_t hang) {
  if (terminal.width == 0) return text;
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    out += fitted_line(line, terminal.width, hang) + "\n";
  return out;
}

}  // namespace lockstep
