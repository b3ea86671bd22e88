#include "harness/run/request_worker.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <string_view>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/subprocess.h"
#include "harness/base/write_file.h"

namespace lockstep {
namespace {

constexpr int kRequests = 3, kAnswers = 4;  // Descriptors of the child.
constexpr std::size_t kMostWords = 65536;   // For its stderr that is kept.

// Appends what can be read now; false at the end of the stream.
bool read_some(int descriptor, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  into.append(buffer.data(), got);
  return got > 0;
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> end{-1, -1};
  if (::pipe2(end.data(), O_CLOEXEC) != 0)
    throw WorldError(std::string("pipe: ") + std::strerror(errno));
  return end;
}

extern "C" void print_stack(int) {
  std::array<void*, 64> frames;
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
}

// Only the three pipes stay open: what a sibling or the lock file holds must end with its owner.
void keep_only(int requests, int answers, int words) {
  const int request = ::fcntl(requests, F_DUPFD, 16), answer = ::fcntl(answers, F_DUPFD, 16);
  ::dup2(words, STDERR_FILENO);
  ::dup2(request, kRequests);
  ::dup2(answer, kAnswers);
  ::close_range(kAnswers + 1, ~0U, 0);
}

void answer_requests(const WorkerSetup& setup) {
  const auto phase = [](const std::string& name) { write_all(kAnswers, "phase " + name + "\n"); };
  phase("starting");
  if (setup.begin) setup.begin();
  std::string unread;
  while (true) {
    std::size_t newline;
    while ((newline = unread.find('\n')) == std::string::npos) {
      if (!read_some(kRequests, unread)) return;  // The parent wants no more.
    }
    const std::string answer = setup.answer(unread.substr(0, newline), phase);
    unread.erase(0, newline + 1);
    if (!write_all(kAnswers, "answer " + answer + "\n")) return;
  }
}

[[noreturn]] void be_the_worker(const WorkerSetup& setup) {
  // Runners send these to all of us; the parent decides, and a case that they cut off would count
  // as a crash.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::array<void*, 4> frames;
  // Loads its library now, not in a signal handler.
  ::backtrace(frames.data(), static_cast<int>(frames.size()));
  std::signal(SIGUSR1, print_stack);
  int status = 0;
  try {
    answer_requests(setup);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);  // No destructors of the parent's statics.
}

// "program(_ZN8lockstep3runEv+0x1d)[0x...]" as "lockstep::run"; "" where the frame has no name.
std::string function_of(const std::string& frame) {
  const std::size_t open = frame.find('('), plus = frame.find('+', open);
  if (open == std::string::npos || plus == std::string::npos || plus == open + 1) return "";
  const std::string mangled = frame.substr(open + 1, plus - open - 1);
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : mangled;
  std::free(plain);
  constexpr std::string_view kNowhere = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(kNowhere)) != std::string::npos;)
    name.erase(at, kNowhere.size());
  name.resize(std::min(name.find('('), name.size()));  // Without arguments.
  return name;
}

// From here on outwards all workers are alike.
bool is_common(const std::string& function) {
  return function == "lockstep::CampaignJobs::answer" ||
         function == "lockstep::SuiteWorker::answer";
}

std::string stack_of(const std::string& said) {
  constexpr int kMostFrames = 12;
  std::istringstream lines(said);
  std::string line, stack;
  int frames = 0;
  while (std::getline(lines, line) && frames < kMostFrames) {
    const std::string function = function_of(line);
    if (function.empty() || function == "print_stack" || function.starts_with("std::")) continue;
    // A sanitizer puts a frame of its own around those of the C library.
    if (function.find("interceptor_") != std::string::npos) continue;
    if (is_common(function)) break;
    stack += (stack.empty() ? "" : " < ") + function;
    ++frames;
  }
  return stack;
}

}  // namespace

RequestWorker::RequestWorker(const WorkerSetup& setup) : echo_(setup.echo) {
  const std::array<int, 2> requests = make_pipe(), answers = make_pipe(), words = make_pipe();
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ < 0) throw WorldError(std::string("fork: ") + std::strerror(errno));
  if (child_ == 0) {
    be_a_child_of(parent);
    keep_only(requests[0], answers[1], words[1]);
    be_the_worker(setup);
  }
  watch_over(child_);
  ::close(requests[0]);
  ::close(answers[1]);
  ::close(words[1]);
  requests_ = requests[1];
  answers_ = answers[0];
  words_ = words[0];
  ::fcntl(words_, F_SETFL, O_NONBLOCK);
}

RequestWorker::~RequestWorker() {
  end();
  for (const int descriptor : {requests_, answers_, words_}) ::close(descriptor);
}

void RequestWorker::ask(const std::string& request) {
  answer_.reset();
  said_.clear();
  phase_ = "waiting for the worker";
  // A worker that is gone shows at its other end.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  write_all(requests_, request + "\n");
  std::signal(SIGPIPE, before);
}

void RequestWorker::listen(const std::vector<RequestWorker*>& workers, int milliseconds) {
  std::vector<pollfd> waiting;
  for (const RequestWorker* one : workers) {
    // One whose end is known would be ready always.
    waiting.push_back({one != nullptr && one->open_ ? one->answers_ : -1, POLLIN, 0});
    waiting.push_back({one != nullptr && one->open_ ? one->words_ : -1, POLLIN, 0});
  }
  ::poll(waiting.data(), waiting.size(), milliseconds);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (waiting[2 * i + 1].revents != 0) workers[i]->read_words();
    if (waiting[2 * i].revents != 0) workers[i]->read_answers();
  }
}

void RequestWorker::read_answers() {
  open_ = read_some(answers_, unread_);
  for (std::size_t newline; (newline = unread_.find('\n')) != std::string::npos;
       unread_.erase(0, newline + 1)) {
    const std::string line = unread_.substr(0, newline);
    if (line.starts_with("phase ")) phase_ = line.substr(6);
    if (line.starts_with("answer ")) answer_ = line.substr(7);
  }
}

void RequestWorker::read_words() {
  const std::size_t before = said_.size();
  read_some(words_, said_);
  if (echo_) write_all(STDERR_FILENO, std::string_view(said_).substr(before));
  if (said_.size() > kMostWords) said_.erase(0, said_.size() - kMostWords / 2);
}

std::optional<std::string> RequestWorker::take_answer() {
  if (answer_) ++served_;
  return std::exchange(answer_, std::nullopt);
}

std::string RequestWorker::where() {
  read_words();
  said_.clear();
  if (child_ < 0 || ::kill(child_, SIGUSR1) != 0) return "";
  pollfd waiting{words_, POLLIN, 0};
  while (::poll(&waiting, 1, said_.empty() ? 500 : 50) > 0 && read_some(words_, said_) &&
         said_.size() < kMostWords) {
  }
  return stack_of(said_);
}

ChildEnd RequestWorker::end() {
  ChildEnd end;
  if (child_ < 0) return end;
  // One that closed its end is dying by itself; how it dies is what we want to know.
  bool ended = false;
  for (int i = 0; i < 200 && !ended; ++i) {
    ended = has_ended(child_);
    pollfd closed{answers_, POLLIN, 0};
    const bool dying =
        ::poll(&closed, 1, 0) > 0 && (closed.revents & (POLLHUP | POLLIN)) == POLLHUP;
    if (ended || !dying) break;
    ::usleep(5000);
  }
  if (!ended) ::kill(child_, SIGKILL);
  const int status = reap_with_its_group(child_);
  child_ = -1;
  while (true) {
    const std::size_t before = said_.size();
    read_words();
    if (said_.size() == before) break;
  }
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  end.last_words = last_words(said_);
  return end;
}

}  // namespace lockstep
