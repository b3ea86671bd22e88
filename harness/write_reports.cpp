#include "harness/write_reports.h"

#include "harness/html_report.h"
#include "harness/write_file.h"

namespace lockstep {

void write_reports(const Options& options, const std::string& junit_text, const boost::json::object& run) {
  if (options.has("json")) write_file(options.text("json"), boost::json::serialize(run) + "\n");
  if (options.has("junit")) write_file(options.text("junit"), junit_text);
  if (options.has("html")) write_file(options.text("html"), html_report(run));
}

}  // namespace lockstep
