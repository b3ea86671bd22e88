#include "harness/failure.h"

#include <cstdio>
#include <new>

#include "engine/communicator.h"
#include "engine/network_meeting.h"
#include "scenarios/reader.h"

namespace lockstep {

ExitStatus report_failure(const std::string& who) {
  const auto failed = [&](ExitStatus status, const std::string& what) {
    std::fflush(stdout);
    std::fputs((who + what + "\n").c_str(), stderr);  // At once: several processes may write here.
    return status;
  };
  try {
    throw;
  } catch (const RequestError& error) {
    return failed(ExitStatus::bad_request, error.what());
  } catch (const TokenError& error) {
    return failed(ExitStatus::bad_request, error.what());
  } catch (const MeetingRefused& error) {
    return failed(ExitStatus::bad_request, error.what());
  } catch (const CollectiveMismatch& error) {
    return failed(ExitStatus::violated, error.what());
  } catch (const CollectiveHang& error) {
    return failed(ExitStatus::hang, error.what());
  } catch (const std::bad_alloc&) {
    return failed(ExitStatus::world_failed, "out of memory");
  } catch (const std::exception& error) {  // DeviceError and WorldError among them.
    return failed(ExitStatus::world_failed, error.what());
  }
}

}  // namespace lockstep
