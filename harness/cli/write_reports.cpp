#include "harness/cli/write_reports.h"

#include <exception>

#include "harness/base/clock.h"
#include "harness/base/write_file.h"
#include "harness/page/html_report.h"
#include "harness/run/failure.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {

boost::json::object signed_report(const Options& options, boost::json::object report) {
  report["date"] = utc_now();
  report["host"] = as_utf8(host_name());
  report["command"] = as_utf8(options.command_line());
  return report;
}

void write_reports(const Options& options, const std::string& junit_text,
                   const boost::json::object& unsigned_run) {
  write_reports(options, junit_text, unsigned_run, html_report);
}

void write_reports(const Options& options, const std::string& junit_text,
                   const boost::json::object& unsigned_run,
                   const std::function<std::string(const boost::json::object&)>& page) {
  const boost::json::object run = signed_report(options, unsigned_run);
  std::exception_ptr failure;
  const auto write = [&](const char* name, const auto& text) {
    if (!options.knows(name) || !options.has(name)) return;
    try {
      write_file(options.text(name), text());
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  write("json", [&] { return as_utf8(boost::json::serialize(run)) + "\n"; });
  write("junit", [&] { return junit_text; });
  write("html", [&] { return page(run); });
  if (failure) std::rethrow_exception(failure);
}

std::function<void()> without_results(const std::vector<std::string>& words) {
  return [files = FailureFiles(words)] { files.write(interrupted_failure()); };
}

ExitStatus interrupted_status(ExitStatus status) {
  return status == ExitStatus::held ? ExitStatus::gave_up : status;
}

}  // namespace lockstep
