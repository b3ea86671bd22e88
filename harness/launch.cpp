#include "harness/launch.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/launch_environment.h"
#include "engine/shared_meeting.h"
#include "harness/device_choice.h"
#include "harness/failure.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<LaunchedRank> launched() {
  try {
    return launched_rank([](const char* name) { return std::getenv(name); });
  } catch (const std::runtime_error& error) {
    throw RequestError(error.what());
  }
}

// A launcher may show each process one GPU alone.
int gpu_of(int local) { return cuda_devices().size() == 1 ? 0 : local; }

// The order of the library's sums follows from these, whatever it would choose for a size; it reads them when ranks
// join.
void pin_sums() {
  ::setenv("NCCL_ALGO", "Ring", 0);
  ::setenv("NCCL_PROTO", "Simple", 0);
}

// The ranks of one process of `processes`, which all have as many.
ExitStatus run_process(const std::string& path, int process, int processes, int local, const Scenario& scenario,
                       bool over_nccl, double deadline_s, const std::function<ExitStatus(const RanksHere&)>& body) {
  const int count = static_cast<int>(scenario.parallel.data), here = count / processes;
  if (scenario.fsdp.reduction == Reduction::nccl) pin_sums();
  try {
    std::vector<std::unique_ptr<Meeting>> meetings;
    for (int rank = process * here; rank < (process + 1) * here; ++rank) {
      meetings.push_back(std::make_unique<SharedMeeting>(path, rank, count, deadline_s));
    }
    return body({.count = count,
                 .seed = static_cast<std::uint64_t>(scenario.training.seed),
                 .meetings = meetings,
                 .over_nccl = over_nccl,
                 .gpu = over_nccl ? gpu_of(local) : 0});
  } catch (...) {
    return report_failure("lockstep: rank " + std::to_string(process * here) + ": ");
  }
}

// ---- Processes that this one starts ---------------------------------------------------------------------------------

// The processes of the ranks, until all have ended. None outlives this one.
class RankProcesses {
 public:
  RankProcesses(int count, const std::function<ExitStatus(int rank)>& body) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = ::fork();
      if (pid < 0) throw WorldError(std::string("fork: ") + std::strerror(errno));  // The others miss it, and say so.
      if (pid == 0) be_the_rank(parent, rank, body);
      pids_.push_back(pid);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses() {
    kill_those_left();
    while (left() > 0) take(0);
  }

  // After the first that fails, the others have `grace_s` to notice.
  ExitStatus wait(double grace_s) {
    std::optional<Clock::time_point> end;
    while (left() > 0) {
      if (!take(WNOHANG)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (!end && status_ != ExitStatus::held) {
        end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(grace_s));
      }
      if (end && Clock::now() > *end) {
        std::fputs("lockstep: some ranks did not notice that another failed\n", stderr);
        kill_those_left();
        end = Clock::time_point::max();
      }
    }
    return status_;
  }

 private:
  [[noreturn]] static void be_the_rank(pid_t parent, int rank, const std::function<ExitStatus(int)>& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const ExitStatus status = body(rank);
    std::fflush(nullptr);
    ::_exit(static_cast<int>(status));  // No destructors of the parent's statics.
  }
  void kill_those_left() const {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
  }
  std::ptrdiff_t left() const {
    return std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }
  // False if none has ended.
  bool take(int flags) {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] <= 0) continue;
      int status = 0;
      const pid_t ended = ::waitpid(pids_[rank], &status, flags);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      pids_[rank] = 0;
      if (WIFSIGNALED(status)) {
        std::fprintf(stderr, "lockstep: rank %zu was killed by SIG%s\n", rank, ::sigabbrev_np(WTERMSIG(status)));
      }
      count(WIFEXITED(status) ? static_cast<ExitStatus>(WEXITSTATUS(status)) : ExitStatus::hang);
      return true;
    }
    return false;
  }
  // What a rank did itself goes before what it made of the others.
  void count(ExitStatus status) {
    const bool open = status_ == ExitStatus::held || status_ == ExitStatus::hang;
    if (open && status != ExitStatus::held) status_ = status;
  }
  std::vector<pid_t> pids_;
  ExitStatus status_ = ExitStatus::held;
};

// ---- Processes that a launcher started ------------------------------------------------------------------------------

std::string meeting_of(const LaunchedRank& me, const LaunchOptions& options) {
  if (!options.meeting.empty()) return options.meeting;
  if (me.job.empty()) {
    throw RequestError(me.launcher + " names no job by which its processes could find each other: --meeting PATH");
  }
  std::string job = me.job;
  std::replace(job.begin(), job.end(), '/', '-');
  const std::string name = "lockstep-" + std::to_string(::getuid()) + "-" + job;
  return (std::filesystem::temp_directory_path() / name).string();
}

ExitStatus join(const LaunchedRank& me, const Scenario& scenario, const LaunchOptions& options,
                const std::function<ExitStatus(const RanksHere&)>& body) {
  const bool one_each = over_nccl(scenario, options.device, true);
  if (scenario.parallel.data % me.size != 0 || (one_each && scenario.parallel.data != me.size)) {
    throw RequestError(me.launcher + " started " + std::to_string(me.size) + " processes, but parallel.data is " +
                       std::to_string(scenario.parallel.data));
  }
  const std::string path = meeting_of(me, options);
  if (me.rank == 0) SharedMeeting::create(path, static_cast<int>(scenario.parallel.data));
  const ExitStatus status =
      run_process(path, me.rank, me.size, me.local_rank, scenario, one_each, options.deadline_s, body);
  if (me.rank == 0) ::unlink(path.c_str());
  return status;
}

}  // namespace

LaunchOptions launch_options(const Options& options, const std::string& device) {
  return {.device = device, .deadline_s = options.seconds("deadline"), .meeting = options.text("meeting")};
}

bool over_nccl(const Scenario& scenario, const std::string& device, bool by_launcher) {
  const Transport transport = scenario.parallel.transport;
  return transport == Transport::nccl || (transport == Transport::automatic && by_launcher && device == "cuda");
}

ExitStatus launch_here(const Scenario& scenario, double deadline_s, const RunFolder& folder,
                       const std::function<ExitStatus(const RanksHere&)>& body) {
  const std::string place = folder.path() + "/meeting";
  const int count = static_cast<int>(scenario.parallel.data);
  SharedMeeting::create(place, count);
  const bool apart = over_nccl(scenario, "", false);
  RankProcesses processes(
      count, [&](int rank) { return run_process(place, rank, count, rank, scenario, apart, deadline_s, body); });
  return processes.wait(deadline_s + 5);
}

ExitStatus launch(const Scenario& scenario, const LaunchOptions& options,
                  const std::function<ExitStatus(const RanksHere&)>& body) {
  const Transport transport = scenario.parallel.transport;
  if (scenario.parallel.data == 1 || transport == Transport::local) return body(all_ranks_here(scenario));
  if (const auto me = launched()) return join(*me, scenario, options, body);
  if (transport == Transport::automatic) return body(all_ranks_here(scenario));
  if (const std::string lacks = lacking(scenario, options.device); !lacks.empty()) throw NoDevice(lacks);
  return launch_here(scenario, options.deadline_s, RunFolder(), body);
}

}  // namespace lockstep
