#include "harness/page/svg.h"

#include <cstdio>

#include "harness/page/html_text.h"

namespace lockstep {
namespace {

std::string closed(const std::string& tag, const std::string& start, const std::string& title) {
  if (title.empty()) return start + "/>\n";
  return start + "><title>" + html(title) + "</title></" + tag + ">\n";
}

}  // namespace

std::string svg_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string svg_rectangle(const std::string& name, double x, double y, double width, double height,
                          const std::string& title) {
  return closed("rect",
                "<rect class=\"" + html(name) + "\" x=\"" + svg_number(x) + "\" y=\"" +
                    svg_number(y) + "\" width=\"" + svg_number(width) + "\" height=\"" +
                    svg_number(height) + "\"",
                title);
}

std::string svg_label(const std::string& name, double x, double y, const std::string& text) {
  return "<text class=\"" + html(name) + "\" x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) +
         "\">" + html(text) + "</text>\n";
}

std::string svg_line(const std::string& name, double x1, double y1, double x2, double y2) {
  return "<line class=\"" + html(name) + "\" x1=\"" + svg_number(x1) + "\" y1=\"" + svg_number(y1) +
         "\" x2=\"" + svg_number(x2) + "\" y2=\"" + svg_number(y2) + "\"/>\n";
}

std::string svg_path(const std::string& name, const std::string& commands,
                     const std::string& title) {
  return closed("path", "<path class=\"" + html(name) + "\" d=\"" + html(commands) + "\"", title);
}

std::string svg(const std::string& name, double width, double height, const std::string& what,
                const std::string& body) {
  return "<svg class=\"" + html(name) + "\" viewBox=\"0 0 " + svg_number(width) + " " +
         svg_number(height) + "\" role=\"img\" aria-label=\"" + html(what) + "\">\n" + body +
         "</svg>\n";
}

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most > 3 ? most - 3 : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace lockstep
