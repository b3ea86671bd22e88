#include "harness/foreign/engine_world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/stopwatch.h"
#include "harness/base/version.h"
#include "harness/foreign/engine_failure.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

constexpr std::int64_t kProtocol = 1;
constexpr double kHelloSeconds = 120, kResetSeconds = 30, kByeSeconds = 5;
// For the others to answer, once a rank has failed.
constexpr double kOthersSeconds = 5;
constexpr int kAskEveryMs = 200;  // Whether a signal came.

// A port that is free now, for the ranks to meet at.
int free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = probe >= 0 &&
                     ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (probe >= 0) ::close(probe);
  if (!bound) throw WorldError("no free port for the engine's ranks");
  return ntohs(address.sin_port);
}

bool has_failed(const json::object& reply) { return reply.contains("failed"); }

}  // namespace

EngineWorld::EngineWorld(const std::string& command, int ranks) {
  const int port = free_port();
  std::vector<json::object> hellos;
  for (int rank = 0; rank < ranks; ++rank) {
    processes_.push_back(std::make_unique<EngineProcess>(
        command, EnginePlace{.rank = rank, .ranks = ranks, .port = port}));
    const std::string own = folder() + "/" + std::to_string(rank);
    std::filesystem::create_directory(own);
    hellos.push_back({{"op", "hello"},
                      {"protocol", kProtocol},
                      {"lockstep", version()},
                      {"rank", rank},
                      {"ranks", ranks},
                      {"folder", own}});
  }
  std::vector<json::object> replies;
  try {
    replies = ask_each(hellos, kHelloSeconds);
  } catch (const EngineFailure& failure) {
    throw WorldError("--engine '" + command + "': " + failure.what());
  }
  try {
    take_hellos(replies);
  } catch (const std::invalid_argument& wrong) {
    throw EngineFailure(JudgeKind::protocol, wrong.what());
  }
}

EngineWorld::~EngineWorld() = default;

void EngineWorld::take_hellos(const std::vector<json::object>& replies) {
  for (const json::object& reply : replies) {
    const json::value* const version = reply.if_contains("protocol");
    if (version == nullptr || !version->is_int64())
      throw std::invalid_argument("hello: `protocol` is missing");
    if (version->as_int64() != kProtocol)
      throw RequestError("the engine speaks protocol " + std::to_string(version->as_int64()) +
                         ", lockstep speaks " + std::to_string(kProtocol));
    for (const char* field :
         {"engine", "honours", "claims", "observes", "counts", "amplifies", "delays"}) {
      const auto of = [&](const json::object& one) {
        return one.contains(field) ? one.at(field) : json::value();
      };
      if (of(reply) != of(replies.front()))
        throw std::invalid_argument(std::string("hello: ranks differ in `") + field + "`");
    }
  }
  hello_ = hello_from_json(replies.front());
}

bool EngineWorld::is_usable() const {
  return !failed_ && std::none_of(processes_.begin(), processes_.end(),
                                  [](const auto& one) { return one->has_ended(); });
}

std::vector<json::object> EngineWorld::ask(const json::object& request, double seconds) {
  return ask_each(std::vector<json::object>(processes_.size(), request), seconds);
}

std::vector<json::object> EngineWorld::ask_each(const std::vector<json::object>& requests,
                                                double seconds) {
  failed_ = true;  // Until all have answered.
  for (std::size_t i = 0; i < requests.size(); ++i) processes_[i]->ask(requests[i]);
  wait(seconds);
  std::vector<json::object> replies;
  for (const auto& process : processes_) {
    // A rank that failed may have left the others waiting for it: its reply counts for all.
    if (process->reply()) replies.push_back(*process->reply());
  }
  failed_ = replies.size() < processes_.size();
  return replies;
}

// Until every rank has replied. A rank whose run failed leaves the others a few seconds.
void EngineWorld::wait(double seconds) {
  const Stopwatch watch;
  double deadline = seconds;
  bool rank_failed = false;
  for (;;) {
    bool all_replied = true, failure_replied = false;
    std::vector<pollfd> waiting;
    for (const auto& process : processes_) {
      all_replied = all_replied && process->reply().has_value();
      failure_replied = failure_replied || (process->reply() && has_failed(*process->reply()));
      for (const pollfd& one : process->descriptors()) waiting.push_back(one);
    }
    if (all_replied) return;
    if (failure_replied && !rank_failed) {
      rank_failed = true;
      deadline = std::min(deadline, watch.seconds() + kOthersSeconds);
    }
    const double left = deadline - watch.seconds();
    if (left <= 0) break;
    if (Interrupts::came()) throw Interrupted("interrupted by " + Interrupts::name());
    const int milliseconds = std::min(kAskEveryMs, static_cast<int>(left * 1000) + 1);
    if (::poll(waiting.data(), waiting.size(), milliseconds) <= 0) continue;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      std::array<pollfd, EngineProcess::kDescriptors> ready{};
      std::copy_n(waiting.begin() + static_cast<std::ptrdiff_t>(i * ready.size()), ready.size(),
                  ready.begin());
      processes_[i]->serve(ready);
    }
  }
  if (rank_failed) return;
  for (const auto& process : processes_) {
    if (process->reply()) continue;
    const std::string limit = std::to_string(static_cast<int>(seconds)) + " s";
    throw EngineFailure(JudgeKind::watchdog, process->told("gave no reply within " + limit));
  }
}

bool EngineWorld::reset() {
  bool may_stay = true;
  for (const json::object& reply : ask({{"op", "reset"}}, kResetSeconds)) {
    const json::value* const restart = reply.if_contains("restart");
    may_stay = may_stay && !(restart != nullptr && restart->is_bool() && restart->as_bool());
  }
  return may_stay;
}

void EngineWorld::close() {
  const bool polite = is_usable();
  try {
    if (polite) ask({{"op", "bye"}}, kByeSeconds);
  } catch (const EngineFailure&) {  // It ends all the same.
  }
  for (const auto& process : processes_) process->end(polite ? kByeSeconds : 0);
}

}  // namespace lockstep::foreign
