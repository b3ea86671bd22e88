#include "harness/page/doctor_page.h"

#include "harness/page/html_text.h"
#include "harness/page/page.h"

namespace lockstep {
namespace {

namespace json = boost::json;

// Objects inside are rows of their own, behind their key.
std::string rows_of(const json::object& object, const std::string& before) {
  std::string out;
  for (const auto& [key, value] : object) {
    const std::string name = before + std::string(key);
    if (const json::object* inner = value.if_object()) {
      out += rows_of(*inner, name + ".");
      continue;
    }
    out += "<tr><th>" + html(name) + "</th><td>" + html(text_in(object, std::string(key).c_str())) +
           "</td></tr>\n";
  }
  return out;
}

}  // namespace

std::string doctor_page(const json::object& report) {
  Page page{.title = "lockstep: doctor",
            .kind = "what this machine has",
            .failed = false,
            .facts = facts_of(report)};
  json::object found = report;
  for (const char* key : {"tool", "version", "revision", "date", "host", "command"})
    found.erase(key);
  page.body =
      "<section>\n<table class=\"place\">\n" + rows_of(found, "") + "</table>\n</section>\n";
  return html_page(page);
}

}  // namespace lockstep
