// The shapes that drawings are made of. Numbers have two decimals, texts are escaped.
#pragma once

#include <string>

namespace lockstep {

std::string svg_number(double value);
// `name` is a class of the style sheet.
std::string svg_rectangle(const std::string& name, double x, double y, double width, double height,
                          const std::string& title = "");
std::string svg_label(const std::string& name, double x, double y, const std::string& text);
std::string svg_line(const std::string& name, double x1, double y1, double x2, double y2);
// `commands` is the `d` of a path.
std::string svg_path(const std::string& name, const std::string& commands,
                     const std::string& title = "");
// `body` in a drawing of `width` by `height` units that is as wide as its column, at most.
std::string svg(const std::string& name, double width, double height, const std::string& what,
                const std::string& body);
// `text`, or its beginning where it has more than `most` bytes; a letter is never cut.
std::string shortened(const std::string& text, std::size_t most);

}  // namespace lockstep
