#include "harness/foreign/engine_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/stopwatch.h"
#include "harness/base/subprocess.h"
#include "harness/foreign/engine_failure.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep::foreign {
namespace {

constexpr std::size_t kMostOfALine = 1 << 20;
constexpr std::size_t kMostOfAReply = 256 << 20;
constexpr std::size_t kLastWords = 64 << 10;
constexpr std::size_t kShownWords = 2000;
constexpr std::size_t kMostDepth = 32;
// For a process that has closed its descriptors to end.
constexpr double kEndSeconds = 5;

std::array<int, 2> make_pipe() {
  std::array<int, 2> end{-1, -1};
  if (::pipe2(end.data(), O_CLOEXEC) != 0)
    throw WorldError(std::string("pipe: ") + std::strerror(errno));
  return end;
}

void set_variable(const char* name, int value) { ::setenv(name, std::to_string(value).c_str(), 1); }

// Between fork and exec.
[[noreturn]] void be_the_engine(const std::string& command, const EnginePlace& place, int requests,
                                int replies, int words, pid_t parent) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1}) std::signal(signal, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(words, STDOUT_FILENO);
  ::dup2(words, STDERR_FILENO);
  for (const int kept : {requests, replies}) ::fcntl(kept, F_SETFD, 0);
  set_variable("RANK", place.rank);
  set_variable("LOCAL_RANK", place.rank);
  set_variable("WORLD_SIZE", place.ranks);
  set_variable("LOCAL_WORLD_SIZE", place.ranks);
  set_variable("MASTER_PORT", place.port);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("LOCKSTEP_ENGINE_FDS",
           (std::to_string(requests) + "," + std::to_string(replies)).c_str(), 1);
  const std::string line = "exec " + command;
  ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

enum class Stream { open, ended };

// Appends what can be read now, up to 64 KiB: who writes without end is not read without end.
Stream read_some(int descriptor, std::string& into) {
  std::array<char, 65536> bytes;
  ssize_t count = -1;
  do {
    count = ::read(descriptor, bytes.data(), bytes.size());
  } while (count < 0 && errno == EINTR);
  if (count > 0) into.append(bytes.data(), count);
  return count > 0 || (count < 0 && errno == EAGAIN) ? Stream::open : Stream::ended;
}

std::string beginning_of(const std::string& line) { return shown(line.substr(0, 200)); }

}  // namespace

EngineProcess::EngineProcess(const std::string& command, EnginePlace place)
    : rank_(place.rank),
      called_(place.called.empty() ? "rank " + std::to_string(rank_) + " of the engine"
                                   : place.called) {
  const std::array<int, 2> requests = make_pipe(), replies = make_pipe(), words = make_pipe();
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ < 0) throw WorldError(std::string("fork: ") + std::strerror(errno));
  if (child_ == 0) be_the_engine(command, place, requests[0], replies[1], words[1], parent);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1L);  // What it leaves behind is waited for here.
  ::close(requests[0]);
  ::close(replies[1]);
  ::close(words[1]);
  requests_ = requests[1];
  replies_ = replies[0];
  words_ = words[0];
  for (const int descriptor : {requests_, replies_, words_})
    ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  log("# ", "start of " + command + "\n");
}

EngineProcess::~EngineProcess() { end(0); }

void EngineProcess::ask(boost::json::object request) {
  const Stream stream = read_some(replies_, unread_);
  if (!unread_.empty()) unasked(unread_);
  if (stream == Stream::ended)
    throw EngineFailure(JudgeKind::crash, told(how_it_died()), EngineFailure::When::between);
  request["id"] = number_ + 1;
  std::string line = boost::json::serialize(request) + "\n";
  if (line.size() > kMostOfALine) throw Skipped("the request takes a line of more than 1 MiB");
  log("> ", line);
  unsent_ = std::move(line);
  ++number_;
  phase_.clear();
  parts_ = {{"rows", boost::json::array()}, {"tensors", boost::json::array()}};
  received_ = 0;
  reply_.reset();
}

std::array<pollfd, EngineProcess::kDescriptors> EngineProcess::descriptors() const {
  return {{{.fd = unsent_.empty() ? -1 : requests_, .events = POLLOUT, .revents = 0},
           {.fd = reply_ ? -1 : replies_, .events = POLLIN, .revents = 0},
           {.fd = words_, .events = POLLIN, .revents = 0}}};
}

void EngineProcess::serve(const std::array<pollfd, kDescriptors>& ready) {
  if (ready[2].revents != 0) read_words();
  if (ready[0].revents != 0) {
    const ssize_t count = ::write(requests_, unsent_.data(), unsent_.size());
    if (count > 0) unsent_.erase(0, count);
    if (count < 0 && errno != EINTR && errno != EAGAIN) unsent_.clear();  // Its end shows below.
  }
  if (ready[1].revents != 0) read_replies();
}

void EngineProcess::read_words() {
  if (read_some(words_, said_) == Stream::ended) words_ = (::close(words_), -1);
  if (said_.size() > 2 * kLastWords) said_.erase(0, said_.size() - kLastWords);
}

void EngineProcess::read_replies() {
  const std::size_t before = unread_.size();
  const Stream stream = read_some(replies_, unread_);
  received_ += unread_.size() - before;
  if (received_ > kMostOfAReply) broken("replied with more than 256 MiB");
  for (std::size_t newline; !reply_ && (newline = unread_.find('\n')) != std::string::npos;) {
    if (newline >= kMostOfALine) broken("wrote a line of more than 1 MiB");
    const std::string line = unread_.substr(0, newline);
    unread_.erase(0, newline + 1);
    log("< ", line + "\n");
    take_line(line);
  }
  if (reply_) return;
  if (unread_.size() > kMostOfALine)
    broken("wrote a line of more than 1 MiB: " + beginning_of(unread_));
  if (stream == Stream::ended) throw EngineFailure(JudgeKind::crash, told(how_it_died()));
}

// It closed its end for replies, which it does by dying; how it dies is what we want to know.
std::string EngineProcess::how_it_died() {
  for (const Stopwatch waiting; !has_ended() && waiting.seconds() < kEndSeconds; ::usleep(5000)) {
  }
  if (words_ >= 0) read_words();
  if (!has_ended()) return "closed its descriptor for replies and goes on running";
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
  const int status = info.si_status;
  if (info.si_code == CLD_EXITED) return "exited with status " + std::to_string(status);
  const char* const name = ::sigabbrev_np(status);
  return name ? std::string("was killed by SIG") + name : "was killed by a signal";
}

void EngineProcess::take_line(const std::string& line) {
  boost::system::error_code unreadable;
  boost::json::parse_options limits;
  limits.max_depth = kMostDepth;
  boost::json::value value = boost::json::parse(line, unreadable, {}, limits);
  if (unreadable || !value.is_object())
    broken("wrote what is no JSON object: " + beginning_of(line));
  boost::json::object& message = value.as_object();
  const boost::json::value* const id = message.if_contains("id");
  // It was written before this request and came late: no run of this case is to blame.
  if (id != nullptr && id->is_int64() && id->as_int64() < number_) unasked(line);
  if (id == nullptr || !id->is_int64() || id->as_int64() != number_)
    broken("wrote no reply to request " + std::to_string(number_) + ": " + beginning_of(line));
  if (const boost::json::value* const phase = message.if_contains("phase")) {
    if (!phase->is_string()) broken("wrote a phase that is no text: " + beginning_of(line));
    phase_ = shown(std::string(phase->as_string()).substr(0, 200));
    return;
  }
  for (const char* name : {"rows", "tensors"}) {
    boost::json::value* const list = message.if_contains(name);
    if (list == nullptr) continue;
    if (!list->is_array()) broken(std::string("wrote `") + name + "` that is no list");
    boost::json::array& all = parts_[name].as_array();
    for (boost::json::value& item : list->as_array()) all.push_back(std::move(item));
  }
  const boost::json::value* const more = message.if_contains("more");
  if (more != nullptr && more->is_bool() && more->as_bool()) return;
  for (const char* name : {"rows", "tensors"}) message[name] = std::move(parts_[name]);
  reply_ = std::move(message);
}

void EngineProcess::log(const char* sign, const std::string& line) const {
  const char* const path = std::getenv("LOCKSTEP_ENGINE_LOG");
  if (path == nullptr || *path == '\0') return;
  const std::string suffix = rank_ == 0 ? "" : "." + std::to_string(rank_);
  std::ofstream(path + suffix, std::ios::app) << sign << line;
}

std::string EngineProcess::told(const std::string& what) const {
  std::string text = called_ + " " + what;
  if (!phase_.empty()) text += " (in " + phase_ + ")";
  std::string words = said_.substr(said_.size() - std::min(said_.size(), kShownWords));
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.empty() ? text : text + "\n" + shown_lines(words);
}

void EngineProcess::broken(const std::string& what) const {
  throw EngineFailure(JudgeKind::protocol, told(what));
}

void EngineProcess::unasked(const std::string& line) const {
  throw EngineFailure(JudgeKind::protocol,
                      told("wrote a reply when nothing was asked: " + beginning_of(line)),
                      EngineFailure::When::between);
}

bool EngineProcess::has_ended() const { return child_ < 0 || lockstep::has_ended(child_); }

void EngineProcess::close_channel() {
  for (int* descriptor : {&requests_, &replies_}) {
    if (*descriptor >= 0) ::close(*descriptor);
    *descriptor = -1;
  }
}

void EngineProcess::end(double patience) {
  if (child_ < 0) return;
  close_channel();
  const auto waited = [&](double seconds) {
    for (const Stopwatch watch; watch.seconds() < seconds; ::usleep(5000)) {
      if (words_ >= 0) read_words();  // It may be waiting for somebody to read them.
      if (has_ended()) return true;
    }
    return has_ended();
  };
  if (!waited(patience)) {
    ::kill(-child_, SIGTERM);
    if (!waited(patience > 0 ? 2 : 0)) ::kill(-child_, SIGKILL);
  }
  reap_with_its_group(child_);
  child_ = -1;
  log("# ", "end\n");
  if (words_ >= 0) ::close(words_);
  words_ = -1;
}

}  // namespace lockstep::foreign
