// The frame of every HTML page: one file that asks nothing of anybody else. A policy in it forbids
// each request and each script but the page's own.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct Page {
  std::string title;    // The window's.
  std::string kind;     // "verify", "bench": what stands behind the program's name.
  bool failed = false;  // The colour of the line under the header.
  // Where and how the numbers were made; a fact without a text is left out.
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::string counts = {};  // A list of numbers, as HTML.
  std::string body = {};    // As HTML.
};
std::string html_page(const Page& page);

// date, host, device, command, revision: what a report's JSON says of itself.
std::vector<std::pair<std::string, std::string>> facts_of(const boost::json::object& report);
// The text of `object[key]`; "" without it.
std::string text_in(const boost::json::object& object, const char* key);
// A block of text with a button that copies it.
std::string copyable(const std::string& text);
// <details> that is closed at first; `body` is HTML.
std::string folded(const std::string& title, const std::string& body);

}  // namespace lockstep
