// Refuses a machine that does not do the contract's arithmetic, before anything is trained or
// judged on it.
#pragma once

#include <string>

#include "engine/device/backend.h"

namespace lockstep {

// Throws WorldError with the reason.
void guard_host();
// The same for a device, which computes the fingerprint. The call waits for the device.
void guard_device(Backend& backend);
// The harness calls it before bf16 is judged. It compares some thousand dot products of the
// device's tensor cores with the model, which must be known.
void guard_tensor_cores(Backend& backend);
// The same for fp8, whose sums are known of one architecture.
void guard_fp8(Backend& backend);

// Asks one of these the first time that this process meets a device of that name with that planted
// fault: a device does not change its arithmetic between two cases of a campaign.
void once_a_process(void (*guard)(Backend&), Backend& backend);

}  // namespace lockstep
