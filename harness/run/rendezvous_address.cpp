#include "harness/run/rendezvous_address.h"

#include <cstdlib>
#include <stdexcept>

#include "harness/base/errors.h"

namespace lockstep {
std::optional<LaunchedRank> launched_here() {
  try {
    return launched_rank([](const char* name) { return std::getenv(name); });
  } catch (const std::runtime_error& error) {
    throw RequestError(error.what());
  }
}

bool writes_reports_here() try {
  const auto me = launched_here();
  return !me || me->rank == 0;
} catch (const RequestError&) {
  return true;
}

void require_meeting_place(const std::string& asked) {
  if (!tcp_address(asked) && asked.find(':') != std::string::npos &&
      asked.find('/') == std::string::npos) {
    throw RequestError("--meeting " + asked +
                       " is no HOST:PORT with a port of 1 to 65535; as a path, ./" + asked);
  }
  if (asked.empty() || launched_here()) return;
  throw RequestError("--meeting " + asked +
                     " is for the processes of a launcher, and this is none of them: there is no "
                     "RANK and WORLD_SIZE");
}

RendezvousAddress rendezvous_address(const LaunchedRank& me, const std::string& asked) {
  if (const auto address = tcp_address(asked)) return {.memory = {}, .address = address};
  if (!asked.empty()) return {.memory = {.path = asked}, .address = {}};
  const auto address = tcp_address(text(TcpAddress{me.host, static_cast<std::uint16_t>(me.port)}));
  if (address && (me.one_machine != true || me.job.empty()))
    return {.memory = {}, .address = address};
  if (me.one_machine == false) {
    throw RequestError(me.launcher +
                       " started processes on several machines and does not say where rank 0 is: "
                       "--meeting HOST:PORT, or MASTER_ADDR and MASTER_PORT");
  }
  if (me.job.empty()) {
    throw RequestError(
        me.launcher +
        " names no job by which its processes could find each other: --meeting PATH, or "
        "HOST:PORT of rank 0");
  }
  return {.memory = place_of_job(me.job), .address = {}};
}

std::string text(const RendezvousAddress& place) {
  return place.address ? text(*place.address) : place.memory.path;
}

}  // namespace lockstep
