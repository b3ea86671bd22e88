#include "harness/run/failure.h"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <new>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/shared_segment.h"
#include "engine/rendezvous/tcp_store.h"
#include "harness/base/clock.h"
#include "harness/base/interrupts.h"
#include "harness/base/write_file.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/run/rendezvous_address.h"
#include "scenarios/io/reader.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {

namespace fs = std::filesystem;

Failure interrupted_failure() {
  return {ExitStatus::gave_up, "interrupted by " + Interrupts::name(), true};
}

Failure failure_at_hand() {
  try {
    throw;
  } catch (const OutputClash& error) {
    return {ExitStatus::bad_request, error.what(), false, true};
  } catch (const RequestError& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const Interrupted& error) {
    return {ExitStatus::gave_up, error.what(), true};
  } catch (const GaveUp& error) {
    return {ExitStatus::gave_up, error.what()};
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
  std::fputs((who + shown_lines(failure.what) + "\n").c_str(), stderr);
  return failure.status;
}

boost::json::object to_json(const Failure& failure) {
  return {{"status", static_cast<int>(failure.status)}, {"text", as_utf8(failure.what)}};
}

CaseResult to_result(const Failure& failure) {
  CaseResult one;
  one.name = "lockstep";
  one.numerics = "-";
  one.verdict = Verdict::broken;
  one.judge = judge_from_text("status " + std::to_string(static_cast<int>(failure.status)));
  one.reason = as_utf8(failure.what);
  return one;
}

namespace {

// Whether another word names the file, or a folder of scenarios in which it lies: an input is not
// replaced by the report of its own failure.
bool is_read(const std::string& path, const std::vector<std::string>& words, std::size_t own) {
  std::error_code unknown;
  const fs::path scenario = fs::path(path).extension() == ".yaml" ? path : "";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i == own) continue;
    if (fs::equivalent(words[i], path, unknown)) return true;
    for (fs::path folder = scenario; folder.has_relative_path(); folder = folder.parent_path()) {
      if (fs::equivalent(folder, words[i], unknown)) return true;
    }
  }
  return false;
}

}  // namespace

FailureFiles::FailureFiles(const std::vector<std::string>& words)
    : json_(named(words, "--json")), junit_(named(words, "--junit")) {}

FailureFiles::File FailureFiles::named(const std::vector<std::string>& words,
                                       const std::string& option) {
  std::string path;
  std::size_t own = 0;
  for (std::size_t i = 0; i < words.size() && words[i] != "--" && path.empty(); ++i) {
    own = i;
    if (words[i].starts_with(option + "=")) path = words[i].substr(option.size() + 1);
    if (words[i] == option && i + 1 < words.size() && !words[i + 1].starts_with("-"))
      path = words[own = i + 1];
  }
  if (is_read(path, words, own)) path.clear();
  return {path, identity(path)};
}

FailureFiles::Identity FailureFiles::identity(const std::string& path) {
  struct stat now {};
  if (path.empty() || ::stat(path.c_str(), &now) != 0) return {};
  return {now.st_ino, now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec};
}

void FailureFiles::write(const Failure& failure) const {
  if (failure.outputs_clash || !writes_reports_here()) return;
  boost::json::object run = run_to_json({}, {}, 0);
  if (failure.interrupted) run["interrupted"] = true;
  run["error"] = to_json(failure);
  run["date"] = utc_now();
  run["host"] = as_utf8(host_name());
  write(json_, boost::json::serialize(run) + "\n");
  write(junit_, junit({to_result(failure)}, failure.interrupted));
}

void FailureFiles::write(const File& file, const std::string& text) try {
  if (!file.path.empty() && identity(file.path) == file.before) write_file(file.path, text);
} catch (const std::exception&) {  // The failure itself has been told.
}

}  // namespace lockstep
