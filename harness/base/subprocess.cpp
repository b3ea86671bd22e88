#include "harness/base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/run_folder.h"
#include "harness/base/write_file.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAskEveryMs = 200;  // Whether a signal came: another thread may have taken it.

struct Pipe {
  std::array<int, 2> end{-1, -1};
  Pipe() {
    if (::pipe2(end.data(), O_CLOEXEC) != 0)
      throw WorldError(std::string("pipe: ") + std::strerror(errno));
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int which) {
    if (end[which] >= 0) ::close(end[which]);
    end[which] = -1;
  }
};

[[noreturn]] void be_the_child(Pipe& result, Pipe& words,
                               const std::function<std::string()>& body) {
  ::dup2(words.end[1], STDERR_FILENO);
  int status = 0;
  try {
    const std::string text = body();
    write_all(result.end[1], text);  // A reader that is gone wants it no more.
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", shown_lines(error.what()).c_str());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);  // No destructors of the parent's statics.
}

// Reads what there is; false at the end of the stream.
bool drain(int descriptor, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR;
  into.append(buffer.data(), got);
  return got > 0;
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left <= 0 ? 0 : static_cast<int>(std::min<std::int64_t>(left + 1, kAskEveryMs));
}

// Until both streams end or the deadline passes. False if it passed, or a signal came.
bool listen(Pipe& result, Pipe& words, Clock::time_point deadline, bool echo, std::string& output,
            std::string& said) {
  std::array<pollfd, 2> waiting{{{result.end[0], POLLIN, 0}, {words.end[0], POLLIN, 0}}};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    if (Interrupts::came()) return false;
    const int ready = ::poll(waiting.data(), waiting.size(), milliseconds_until(deadline));
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready <= 0) continue;
    if (waiting[0].revents != 0 && !drain(waiting[0].fd, output)) waiting[0].fd = -1;
    const std::size_t before = said.size();
    if (waiting[1].revents != 0 && !drain(waiting[1].fd, said)) waiting[1].fd = -1;
    if (echo) write_all(STDERR_FILENO, std::string_view(said).substr(before));
    if (said.size() > 1 << 20) said.erase(0, said.size() - 4096);
  }
  return true;
}

}  // namespace

void be_a_child_of(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);
  Interrupts::leave_to_child();
}

void watch_over(pid_t child) {
  ::setpgid(child, child);              // It does so too; whoever comes first.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1L);  // Its own children are waited for here if it dies.
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

int reap_with_its_group(pid_t child) {
  siginfo_t info{};
  // Until it is reaped, no other group has its number.
  while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) < 0 &&
         errno == EINTR) {
  }
  ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  while (::waitpid(-child, nullptr, 0) > 0 || errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) remove_run_folders_of(child);
  return status;
}

std::string last_words(std::string said) {
  const std::size_t contract = said.rfind("broken contract in ");
  if (contract != std::string::npos) {
    const std::size_t end = said.find('\n', contract), op = said.find(kRunningOp, contract);
    std::string words = said.substr(contract, end - contract);
    if (op != std::string::npos) {
      const std::size_t first = op + std::strlen(kRunningOp);
      words += " " + said.substr(first, said.find('\n', first) - first);
    }
    return words;
  }
  while (!said.empty() && said.back() == '\n') said.pop_back();
  const std::size_t newline = said.rfind('\n');
  return newline == std::string::npos ? said : said.substr(newline + 1);
}

ChildEnd run_in_child(const std::function<std::string()>& body, double timeout_s, bool echo) {
  Pipe result, words;
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw WorldError(std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    be_a_child_of(parent);
    be_the_child(result, words, body);
  }
  watch_over(child);
  result.close_end(1);
  words.close_end(1);

  ChildEnd end;
  std::string said;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_s));
  end.timed_out = !listen(result, words, deadline, echo, end.output, said);
  if (end.timed_out) ::kill(child, SIGKILL);
  const int status = reap_with_its_group(child);
  if (end.timed_out && Interrupts::came())
    throw Interrupted("interrupted by " + Interrupts::name());
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  end.finished = !end.timed_out && WIFEXITED(status) && end.status == 0;
  end.last_words = last_words(std::move(said));
  return end;
}

}  // namespace lockstep
