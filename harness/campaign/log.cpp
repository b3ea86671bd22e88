#include "harness/campaign/log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/base/errors.h"
#include "harness/base/write_file.h"

namespace lockstep {
namespace {

namespace json = boost::json;

bool is_regular(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

std::string read_all(int descriptor, const std::string& path) {
  std::string text;
  char buffer[65536];
  ssize_t got;
  while ((got = ::pread(descriptor, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, got);
  }
  if (got < 0) throw WorldError(path + ": cannot read: " + std::strerror(errno));
  return text;
}

bool is_header(const json::object& line) {
  const json::value* const campaign = line.if_contains("campaign");
  if (campaign == nullptr || !campaign->is_object()) return false;
  const json::value* const seed = campaign->as_object().if_contains("seed");
  const json::value* const files = campaign->as_object().if_contains("corpus_files");
  if (seed == nullptr || !seed->is_string()) return false;
  const auto is_text = [](const json::value& one) { return one.is_string(); };
  return files == nullptr || (files->is_array() && std::all_of(files->as_array().begin(),
                                                               files->as_array().end(), is_text));
}

}  // namespace

LockedFile::LockedFile(const std::string& path, const std::string& what) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw WorldError(path + ": cannot open for writing: " + std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  ::close(descriptor_);
  if (error != EWOULDBLOCK) throw WorldError(path + ": cannot lock: " + std::strerror(error));
  throw RequestError(path + ": another campaign uses this " + what +
                     "; wait for it, or name another " + what);
}

LockedFile::~LockedFile() { ::close(descriptor_); }

CampaignLog::CampaignLog(const std::string& path, bool resume) : path_(path), file_(path, "log") {
  if (is_regular(file_.descriptor())) read(resume);
}

void CampaignLog::read(bool resume) {
  const std::string text = read_all(file_.descriptor(), path_);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    boost::system::error_code error;
    json::value line = json::parse(text.substr(begin, end - begin), error);
    if (error || !line.is_object() || (lines_ == 0 && !is_header(line.as_object())))
      refuse(lines_ + 1);
    if (lines_++ == 0) {
      header_ = std::move(line);
    } else {
      done_.push_back(std::move(line));
    }
  }
  if (lines_ > 0 && !resume) {
    throw RequestError(path_ +
                       ": holds a campaign already; --resume continues it, or name another log");
  }
  if (begin < text.size() && ::ftruncate(file_.descriptor(), static_cast<off_t>(begin)) != 0) {
    throw WorldError(path_ + ": cannot cut off the torn last line: " + std::strerror(errno));
  }
}

void CampaignLog::refuse(std::size_t line) const {
  throw RequestError(path_ + ":" + std::to_string(line) + ": is no line of a campaign's log");
}

void CampaignLog::begin(const json::object& header) {
  if (header_.is_null()) {
    append(header, true);
    header_ = header;
    return;
  }
  const json::object& there = header_.as_object().at("campaign").as_object();
  for (const auto& [key, value] : header.at("campaign").as_object()) {
    if (there.contains(key) && there.at(key) == value) continue;
    throw RequestError(path_ + ": cannot be resumed: it was begun with " + std::string(key) + " " +
                       (there.contains(key) ? json::serialize(there.at(key)) : "absent") +
                       ", this request has " + json::serialize(value));
  }
}

// EINVAL: a device such as /dev/stdout, which has nothing to sync.
bool CampaignLog::synced(bool urgent) {
  constexpr double kEvery = 0.5;
  if (!urgent && since_sync_.seconds() < kEvery) return true;
  since_sync_ = Stopwatch();
  return ::fdatasync(file_.descriptor()) == 0 || errno == EINVAL;
}

void CampaignLog::append(const json::object& line, bool urgent) {
  const std::string text = json::serialize(line) + "\n";
  const int descriptor = file_.descriptor();
  struct stat before {};
  ::fstat(descriptor, &before);
  if (write_all(descriptor, text) && synced(urgent)) {
    ++lines_;
    return;
  }
  const int error = errno;
  if (is_regular(descriptor) && ::ftruncate(descriptor, before.st_size) != 0) {
    // The torn line stays, and is cut off by --resume.
  }
  throw WorldError(path_ + ": cannot write: " + std::strerror(error) + "; " +
                   std::to_string(lines_ > 0 ? lines_ - 1 : 0) +
                   " cases are in it, --resume goes on from there");
}

}  // namespace lockstep
