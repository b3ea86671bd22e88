#include "engine/device/exchange.h"

namespace lockstep {

const char* to_text(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier:
      return "meet";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::launch:
      return "launch";
    case CollectiveKind::send:
      return "send";
    case CollectiveKind::receive:
      return "receive";
  }
  return "an unknown call";
}

}  // namespace lockstep
