#include "harness/page/html_coverage.h"

#include <algorithm>
#include <cstdio>

#include "harness/page/html_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string text_of(const json::value& value) {
  return value.is_string() ? json::value_to<std::string>(value) : json::serialize(value);
}

// A table of names and counts with a bar each; what never occurred stands out.
std::string counts_table(const std::string& title, const json::object& counts) {
  double most = 1;
  for (const auto& [name, value] : counts) {
    if (value.is_number()) most = std::max(most, value.to_number<double>());
  }
  std::string out = element("h3", "", title) + "\n<table class=\"traits\">\n";
  for (const auto& [name, value] : counts) {
    const double count = value.is_number() ? value.to_number<double>() : -1;
    char width[16];
    std::snprintf(width, sizeof width, "%.1f", std::max(0.0, 300 * count / most));
    out += std::string("<tr") + (count == 0 ? " class=\"never\"" : "") + ">" +
           element("td", "", std::string(name)) +
           element("td", "n", count == 0 ? "never" : text_of(value)) +
           "<td><span class=\"bar\" style=\"width: " + width + "px\"></span></td></tr>\n";
  }
  return out + "</table>\n";
}

// Pairs as [a, b, ...]; of all pairs the page shows only how many there are.
std::string never_met(const json::array& pairs) {
  if (pairs.empty()) return "<p>Every pair that can meet has met.</p>\n";
  std::string out = "<h3>Pairs that never met</h3>\n<ul class=\"pairs never\">\n";
  for (const json::value& pair : pairs) {
    std::string names;
    if (const json::array* both = pair.if_array()) {
      for (const json::value& one : *both) names += (names.empty() ? "" : " + ") + text_of(one);
    } else {
      names = text_of(pair);
    }
    out += element("li", "", names) + "\n";
  }
  return out + "</ul>\n";
}

}  // namespace

std::string coverage_section(const json::value& distribution) {
  std::string numbers, tables;
  const json::object* object = distribution.if_object();
  if (object == nullptr) return "";
  for (const auto& [key, value] : *object) {
    const std::string name(key);
    if (name == "pairs") continue;  // Thousands of rows; the JSON has them.
    if (const json::object* counts = value.if_object()) {
      tables += counts_table(name, *counts);
    } else if (name == "never_met" && value.is_array()) {
      tables += never_met(value.get_array());
    } else {
      std::string words = name;
      std::replace(words.begin(), words.end(), '_', ' ');
      numbers += "<li><b>" + html(text_of(value)) + "</b> " + html(words) + "</li>\n";
    }
  }
  return "<section>\n<h2>Coverage</h2>\n<ul class=\"counts\">\n" + numbers + "</ul>\n" + tables +
         "</section>\n";
}

}  // namespace lockstep
