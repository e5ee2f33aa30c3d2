// What plans from any file must be before the first of their numbers is used.

#pragma once

#include "player/plans.h"

#include <cstdint>

namespace etwgpu {

// Of any register, and of every number that becomes one.
inline constexpr int64_t kMaxNumber = int64_t{1} << 53;

// Throws Failure for an index, a count, a type or a role that is none. What depends on
// live shapes is compared when they are known (size_code.h, player.h).
void check_plans(const Plans& plans);

}  // namespace etwgpu
