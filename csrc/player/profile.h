// Which of a file's profiles a device gets.

#pragma once

#include "player/device.h"
#include "player/plans.h"

#include <string>

namespace etwgpu {

// The first that the device fits; with `is_f16` false, none that needs f16. Throws
// Failure, with the limit that the last one does not meet, if there is none.
const PlanProfile& choose_profile(const Plans& plans, const DeviceCaps& caps,
                                  const std::string& device, bool is_f16);

}  // namespace etwgpu
