#include "harness/page/page.h"

#include "harness/page/html_script.h"
#include "harness/page/html_style.h"
#include "harness/page/html_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

// `none` closes images, fonts, frames, forms and connections. The script is the one of this digest:
// a text that a report failed to escape would not run.
constexpr const char* kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'sha256-C+EBvTQrAu9649dkVvU0Uoin//SQhB+0bm4U70m6epU='; base-uri 'none'; "
    "form-action 'none'";

std::string fact_list(const Page& page) {
  std::string rows;
  for (const auto& [name, value] : page.facts) {
    if (value.empty()) continue;
    rows += "<div>" + element("dt", "", name) + element("dd", "", value) + "</div>\n";
  }
  return rows.empty() ? "" : "<dl class=\"facts\">\n" + rows + "</dl>\n";
}

}  // namespace

std::string html_page(const Page& page) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta http-equiv=\"Content-Security-Policy\" content=\"" + std::string(kPolicy) +
         "\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
         "content=\"light dark\">\n";
  out +=
      element("title", "", page.title) + "\n<style>" + kHtmlStyle + "</style>\n</head>\n<body>\n";
  out += "<header class=\"" + std::string(page.failed ? "failed" : "held") + "\">\n<h1>lockstep " +
         element("small", "", page.kind) + "</h1>\n" + page.counts + fact_list(page) +
         "</header>\n<main>\n" + page.body + "</main>\n";
  return out + "<script>" + kHtmlScript + "</script>\n</body>\n</html>\n";
}

std::string text_in(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? json::value_to<std::string>(*value) : json::serialize(*value);
}

std::vector<std::pair<std::string, std::string>> facts_of(const json::object& report) {
  std::string device;
  if (const json::value* value = report.if_contains("device"); value && value->is_object()) {
    const json::object& info = value->get_object();
    device = text_in(info, "kind");
    if (!text_in(info, "name").empty()) device += ": " + text_in(info, "name");
    for (const char* key : {"driver", "cuda", "nccl", "cudnn", "cublas"}) {
      const std::string version = text_in(info, key);
      if (!version.empty()) device += ", " + std::string(key) + " " + version;
    }
  }
  return {{"date", text_in(report, "date")},
          {"host", text_in(report, "host")},
          {"device", device},
          {"command", text_in(report, "command")},
          {"build", text_in(report, "version") + " (" + text_in(report, "revision") + ")"}};
}

std::string copyable(const std::string& text) { return element("pre", "copy", text) + "\n"; }

std::string folded(const std::string& title, const std::string& body) {
  return "<details>" + element("summary", "", title) + body + "</details>\n";
}

}  // namespace lockstep
