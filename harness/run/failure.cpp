#include "harness/run/failure.h"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <cstdio>
#include <new>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/shared_segment.h"
#include "engine/rendezvous/tcp_store.h"
#include "harness/base/write_file.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/run/rendezvous_address.h"
#include "scenarios/io/reader.h"

namespace lockstep {
Failure failure_at_hand() {
  try {
    throw;
  } catch (const RequestError& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const TokenError& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const JoinRefused& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const PlaceIsTaken& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const CollectiveMismatch& error) {
    return {ExitStatus::violated, error.what()};
  } catch (const CollectiveHang& error) {
    return {ExitStatus::hang, error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitStatus::world_failed, "out of memory"};
  } catch (const std::exception& error) {  // DeviceError and WorldError among them.
    return {ExitStatus::world_failed, error.what()};
  }
}

ExitStatus report_failure(const std::string& who) {
  const Failure failure = failure_at_hand();
  std::fflush(stdout);
  // Written by one call, because several processes may write here.
  std::fputs((who + failure.what + "\n").c_str(), stderr);
  return failure.status;
}

FailureFiles::FailureFiles(const std::vector<std::string>& words)
    : json_(named(words, "--json")), junit_(named(words, "--junit")) {}

FailureFiles::File FailureFiles::named(const std::vector<std::string>& words,
                                       const std::string& option) {
  std::string path;
  for (std::size_t i = 0; i < words.size() && words[i] != "--" && path.empty(); ++i) {
    if (words[i].starts_with(option + "=")) path = words[i].substr(option.size() + 1);
    if (words[i] == option && i + 1 < words.size() && !words[i + 1].starts_with("-"))
      path = words[i + 1];
  }
  return {path, identity(path)};
}

FailureFiles::Identity FailureFiles::identity(const std::string& path) {
  struct stat now {};
  if (path.empty() || ::stat(path.c_str(), &now) != 0) return {};
  return {now.st_ino, now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec};
}

void FailureFiles::write(const Failure& failure) const try {
  if (!writes_reports_here()) return;
  boost::json::object run = run_to_json({}, {}, 0);
  run["error"] =
      boost::json::object{{"status", static_cast<int>(failure.status)}, {"text", failure.what}};
  write(json_, boost::json::serialize(run) + "\n");
  CaseResult one;
  one.name = "lockstep";
  one.numerics = "-";
  one.verdict = Verdict::broken;
  one.judge = judge_from_text("status " + std::to_string(static_cast<int>(failure.status)));
  one.reason = failure.what;
  write(junit_, junit({one}));
} catch (const std::exception&) {  // The failure itself has been told.
}

void FailureFiles::write(const File& file, const std::string& text) {
  if (!file.path.empty() && identity(file.path) == file.before) write_file(file.path, text);
}

}  // namespace lockstep
