#include "harness/failure.h"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <cstdio>
#include <new>

#include "engine/communicator.h"
#include "engine/network_meeting.h"
#include "harness/meeting_place.h"
#include "harness/result_json.h"
#include "harness/write_file.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

std::string named_by_json(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].rfind("--json=", 0) == 0) return words[i].substr(7);
    if (words[i] == "--json" && i + 1 < words.size() && words[i + 1].rfind("-", 0) != 0) return words[i + 1];
  }
  return "";
}

}  // namespace

Failure failure_at_hand() {
  try {
    throw;
  } catch (const RequestError& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const TokenError& error) {
    return {ExitStatus::bad_request, error.what()};
  } catch (const MeetingRefused& error) {
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
  std::fputs((who + failure.what + "\n").c_str(), stderr);  // At once: several processes may write here.
  return failure.status;
}

FailureFile::FailureFile(const std::vector<std::string>& words) : path_(named_by_json(words)), before_(identity()) {}

FailureFile::Identity FailureFile::identity() const {
  struct stat now {};
  if (path_.empty() || ::stat(path_.c_str(), &now) != 0) return {};
  return {now.st_ino, now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec};
}

void FailureFile::write(const Failure& failure) const try {
  if (path_.empty() || identity() != before_) return;
  if (const auto me = launched_here(); me && me->rank > 0) return;
  boost::json::object run = run_to_json({}, {}, 0);
  run["error"] = boost::json::object{{"status", static_cast<int>(failure.status)}, {"text", failure.what}};
  write_file(path_, boost::json::serialize(run) + "\n");
} catch (const std::exception&) {  // The failure itself has been told.
}

}  // namespace lockstep
