#include "harness/run/launch.h"

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
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/rendezvous/shared_memory_store.h"
#include "engine/rendezvous/tcp_store.h"
#include "harness/base/interrupts.h"
#include "harness/base/removed_at_exit.h"
#include "harness/base/version.h"
#include "harness/run/device_choice.h"
#include "harness/run/failure.h"
#include "harness/run/meeting_key.h"
#include "harness/run/rendezvous_address.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A launcher may show each process one GPU alone.
int gpu_of(int local) { return cuda_devices().size() == 1 ? 0 : local; }

// A process of `of`, which all have as many ranks.
struct Process {
  int number = 0, of = 1;
  int local = 0;  // Among those of this machine.
  std::function<std::unique_ptr<Store>(int rank)> meeting;
  std::string same = "";  // LocalRanks::same
};

ExitStatus run_process(const Process& process, const Scenario& scenario, bool over_nccl,
                       const std::function<ExitStatus(const LocalRanks&)>& body) {
  const int count = static_cast<int>(ranks_of_run(scenario)), here = count / process.of;
  if (scenario.fsdp.reduction == Reduction::nccl) pin_sums(process.number == 0);
  try {
    std::vector<std::unique_ptr<Store>> meetings;
    for (int rank = process.number * here; rank < (process.number + 1) * here; ++rank) {
      meetings.push_back(process.meeting(rank));
    }
    return body({.count = count,
                 .seed = static_cast<std::uint64_t>(scenario.training.seed),
                 .meetings = meetings,
                 .over_nccl = over_nccl,
                 .gpu = over_nccl ? gpu_of(process.local) : 0,
                 .same = process.same});
  } catch (...) {
    return report_failure("lockstep: rank " + std::to_string(process.number * here) + ": ");
  }
}

// ---- Processes that this one starts -------------------------------------------------------------

// The processes of the ranks, until all have ended. None outlives this one.
class RankProcesses {
 public:
  RankProcesses(int count, const std::function<ExitStatus(int rank)>& body) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = ::fork();
      // The others miss it, and say so.
      if (pid < 0) throw WorldError(std::string("fork: ") + std::strerror(errno));
      if (pid == 0) be_the_rank(parent, rank, body);
      pids_.push_back(pid);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses() {
    kill_those_left();
    while (left() > 0) take(0, {});
  }

  // When the first process has failed, the others have `grace_s` seconds to notice.
  ExitStatus wait(double grace_s, const RankEnded& ended) {
    std::optional<Clock::time_point> end;
    while (left() > 0) {
      if (!take(WNOHANG, ended)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (!interrupted_ && Interrupts::came()) {
        interrupted_ = true;
        signal_those_left(Interrupts::first());
        end = after(kInterruptedSeconds);
      }
      if (!end && status_ != ExitStatus::held) end = after(grace_s);
      if (end && Clock::now() > *end) {
        if (!interrupted_)
          std::fputs("lockstep: some ranks did not notice that another failed\n", stderr);
        stops_them_ = true;
        kill_those_left();
        end = Clock::time_point::max();
      }
    }
    if (interrupted_) throw Interrupted("interrupted by " + Interrupts::name());
    return status_;
  }

 private:
  // Less than an InterruptGuard of this process leaves, more than one of a rank takes.
  static constexpr double kInterruptedSeconds = 4;

  static Clock::time_point after(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  [[noreturn]] static void be_the_rank(pid_t parent, int rank,
                                       const std::function<ExitStatus(int)>& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    Interrupts::leave_to_child();
    const ExitStatus status = body(rank);
    std::fflush(nullptr);
    ::_exit(static_cast<int>(status));  // No destructors of the parent's statics.
  }
  void kill_those_left() const { signal_those_left(SIGKILL); }
  void signal_those_left(int signal) const {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, signal);
    }
  }
  std::ptrdiff_t left() const {
    return std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }
  // False if none has ended.
  bool take(int flags, const RankEnded& told) {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] <= 0) continue;
      int status = 0;
      const pid_t ended = ::waitpid(pids_[rank], &status, flags);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      pids_[rank] = 0;
      if (told) {
        told(static_cast<int>(rank), {.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                      .status = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                      .stopped = stops_them_ && WIFSIGNALED(status)});
      }
      if (WIFSIGNALED(status) && !interrupted_) {
        std::fprintf(stderr, "lockstep: rank %zu was killed by SIG%s\n", rank,
                     ::sigabbrev_np(WTERMSIG(status)));
      }
      count(WIFEXITED(status) ? static_cast<ExitStatus>(WEXITSTATUS(status)) : ExitStatus::hang);
      return true;
    }
    return false;
  }
  // A rank's own failure goes before what it made of the others.
  void count(ExitStatus status) {
    const bool open = status_ == ExitStatus::held || status_ == ExitStatus::hang;
    if (open && status != ExitStatus::held) status_ = status;
  }
  std::vector<pid_t> pids_;
  bool stops_them_ = false;  // The ones left.
  bool interrupted_ = false;
  ExitStatus status_ = ExitStatus::held;
};

// ---- Processes that a launcher started ----------------------------------------------------------

SharedPlace place_in(const std::string& folder) { return {folder + "/meeting"}; }

std::string same_in_all(const Scenario& scenario) {
  return std::string("lockstep ") + version() + " " + revision() + "\n" + to_yaml(scenario);
}

// A run of one process is none of a launcher's several, each of which would do all of it and write
// the same files. Slurm's variables may be those of the shell around a single process, and those
// that make no sense are no launcher's.
void require_alone(const Scenario& scenario) {
  std::optional<LaunchedRank> me;
  try {
    me = launched_here();
  } catch (const std::exception&) {
    return;
  }
  if (!me || me->launcher == "Slurm") return;
  const std::string why =
      ranks_of_run(scenario) == 1 ? "parallel.data is 1" : "parallel.transport is local";
  throw RequestError(me->launcher + " started " + std::to_string(me->size) + " processes, but " +
                     why + ": each would do all of it, and write the same files");
}

ExitStatus join(const LaunchedRank& me, const Scenario& scenario, const LaunchOptions& options,
                const std::function<ExitStatus(const LocalRanks&)>& body) {
  const int count = static_cast<int>(ranks_of_run(scenario));
  const bool one_each = over_nccl(scenario, options.device, true);
  const bool stages = scenario.parallel.pipeline > 1, experts = expert_ranks(scenario) > 1;
  if (count % me.size != 0 || ((one_each || stages || experts) && count != me.size)) {
    throw RequestError(me.launcher + " started " + std::to_string(me.size) + " processes, but " +
                       (stages ? "parallel.data x parallel.pipeline" : "parallel.data") + " is " +
                       std::to_string(count) +
                       (experts ? ", and parallel.expert needs a process for each rank" : ""));
  }
  const bool over_the_host = !one_each && captures_calls(scenario);
  if (over_the_host && options.device == "cuda") throw NoDevice(lacking(scenario, options.device));
  if (over_the_host && me.size < count) {
    throw RequestError(me.launcher + " started " + std::to_string(me.size) + " processes for " +
                       std::to_string(count) +
                       " ranks, but a graph that holds their exchanges needs a process for each");
  }
  const RendezvousAddress place = rendezvous_address(me, options.meeting);
  const RunIdentity run{.name = me.job, .key = place.address ? meeting_key(std::getenv) : ""};
  const auto meeting = [&](int rank) -> std::unique_ptr<Store> {
    if (!place.address)
      return std::make_unique<SharedMemoryStore>(place.memory, rank, count, options.deadline_s);
    return std::make_unique<TcpStore>(*place.address, run, rank, count, options.deadline_s);
  };
  std::optional<SharedSegment> segment;
  std::optional<RemovedAtExit> removed;
  if (!place.address && me.rank == 0) {
    segment.emplace(SharedMemoryStore::create(place.memory, count));
    removed.emplace(segment->path());
  }
  return run_process({.number = me.rank,
                      .of = me.size,
                      .local = me.local_rank,
                      .meeting = meeting,
                      .same = same_in_all(scenario)},
                     scenario, one_each, body);
}

}  // namespace

void pin_sums(bool tells) {
  for (const auto& [name, pinned] : {std::pair{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}}) {
    const char* set = std::getenv(name);
    if (tells && set != nullptr && std::string_view(set) != pinned)
      std::fprintf(stderr, "lockstep: %s=%s is replaced by %s, which fixes the order of sums\n",
                   name, shown(set).c_str(), pinned);
    ::setenv(name, pinned, 1);
  }
}

LaunchOptions launch_options(const Options& options, const std::string& device) {
  require_meeting_place(options.text("meeting"));
  return {.device = device,
          .deadline_s = options.seconds("deadline"),
          .meeting = options.text("meeting")};
}

bool over_nccl(const Scenario& scenario, const std::string& device, bool by_launcher) {
  const Transport transport = scenario.parallel.transport;
  return transport == Transport::nccl ||
         (transport == Transport::automatic && by_launcher && device == "cuda");
}

SharedSegment meeting_in(const RunFolder& folder, const Scenario& scenario) {
  return SharedMemoryStore::create(place_in(folder.path()),
                                   static_cast<int>(ranks_of_run(scenario)));
}

void tell_lost(int rank, const RunFolder& folder, const Scenario& scenario) {
  SharedMemoryStore::tell_lost(place_in(folder.path()), rank,
                               static_cast<int>(ranks_of_run(scenario)));
}

ExitStatus run_as_rank(int rank, const std::string& folder, const Scenario& scenario,
                       double deadline_s,
                       const std::function<ExitStatus(const LocalRanks&)>& body) {
  const int count = static_cast<int>(ranks_of_run(scenario));
  const auto meeting = [&](int number) {
    return std::make_unique<SharedMemoryStore>(place_in(folder), number, count, deadline_s);
  };
  return run_process({.number = rank, .of = count, .local = rank, .meeting = meeting}, scenario,
                     over_nccl(scenario, "", false), body);
}

ExitStatus launch_here(const Scenario& scenario, double deadline_s, const RunFolder& folder,
                       const std::function<ExitStatus(const LocalRanks&)>& body,
                       const RankEnded& ended) {
  const SharedSegment segment = meeting_in(folder, scenario);
  RankProcesses processes(static_cast<int>(ranks_of_run(scenario)), [&](int rank) {
    return run_as_rank(rank, folder.path(), scenario, deadline_s, body);
  });
  const auto told = [&](int rank, const RankEnd& end) {
    // One that was interrupted has left by itself, or the signal has ended it in its first moments.
    // The others were interrupted too: that is what their reports say.
    const bool interrupted = end.signal == 0
                                 ? end.status == static_cast<int>(ExitStatus::gave_up)
                                 : Interrupts::came() && end.signal == Interrupts::first();
    if ((end.signal != 0 || end.status != 0) && !interrupted) tell_lost(rank, folder, scenario);
    if (ended) ended(rank, end);
  };
  return processes.wait(deadline_s + kNoticeSeconds, told);
}

ExitStatus launch(const Scenario& scenario, const LaunchOptions& options,
                  const std::function<ExitStatus(const LocalRanks&)>& body) {
  const Transport transport = scenario.parallel.transport;
  if (ranks_of_run(scenario) == 1 || transport == Transport::local) {
    require_alone(scenario);
    return body(all_local_ranks(scenario));
  }
  if (const auto me = launched_here()) return join(*me, scenario, options, body);
  if (transport == Transport::automatic) return body(all_local_ranks(scenario));
  if (const std::string lacks = lacking(scenario, options.device); !lacks.empty())
    throw NoDevice(lacks);
  return launch_here(scenario, options.deadline_s, RunFolder(), body);
}

}  // namespace lockstep
