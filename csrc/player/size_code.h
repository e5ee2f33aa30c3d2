// The numbers of plans that depend on live shapes.

#pragma once

#include "player/plans.h"

#include <cstdint>
#include <vector>

namespace etwgpu {

// An input of a call: a tensor's extents, or an int.
struct LiveInput {
  bool is_int = false;
  int64_t value = 0;
  std::vector<int64_t> shape;
};

// All registers, for inputs as `variant` describes them: those of any variant of a
// profile are alike. Throws Failure if the inputs are not what was exported.
std::vector<int64_t> live_registers(const Plans& plans, const PlanVariant& variant,
                                    const std::vector<LiveInput>& inputs);

// The first variant whose guards hold; throws Failure if none does.
const PlanVariant& choose_variant(const Plans& plans, const PlanProfile& profile,
                                  const std::vector<int64_t>& registers);

}  // namespace etwgpu
