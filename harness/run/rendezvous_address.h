// The place where the processes of a launcher find each other.
#pragma once

#include <optional>
#include <string>

#include "engine/rendezvous/launch_environment.h"
#include "engine/rendezvous/shared_segment.h"
#include "engine/rendezvous/tcp_store.h"

namespace lockstep {

// The rank that the environment describes; RequestError where it contradicts itself.
std::optional<LaunchedRank> launched_here();

// The first of a launcher's processes writes reports. Variables that make no sense are for who
// needs them to complain of.
bool writes_reports_here();

// One of the two.
struct RendezvousAddress {
  SharedPlace memory;                 // On this machine, in memory that they share.
  std::optional<TcpAddress> address;  // For rank 0, over the network.
};

// `asked` (--meeting) is a path or HOST:PORT; "" leaves it to the launcher's variables: the
// machine's memory where all processes are on one, else the network. RequestError where nothing
// says enough.
RendezvousAddress rendezvous_address(const LaunchedRank& me, const std::string& asked);
// Throws RequestError for a HOST:PORT with an invalid port, which would otherwise be taken for a
// path at which no other rank is.
void require_meeting_place(const std::string& asked);

std::string text(const RendezvousAddress& place);

}  // namespace lockstep
