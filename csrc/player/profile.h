// Which of a file's profiles a device gets.

#pragma once

#include "player/device.h"
#include "player/plans.h"

#include <string>

namespace etwgpu {

// What of a device may be used.
struct Allowed {
  bool f16 = true;
  bool subgroups = true;
  bool cpu_kernels = true;
};

// The first that the device fits with what is allowed. Throws Failure, with the limit
// that the last one does not meet, if there is none.
const PlanProfile& choose_profile(const Plans& plans, const DeviceCaps& caps,
                                  const std::string& device, const Allowed& allowed);

}  // namespace etwgpu
