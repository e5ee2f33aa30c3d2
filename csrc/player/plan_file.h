// The delegate's bytes to its plans.
//
// The bytes are the graph, which a player skips, and then the plans, each a header and
// a flatbuffer. A file may be anybody's: what leaves here has been checked throughout.

#pragma once

#include "player/plans.h"

#include <cstddef>

namespace etwgpu {

// Throws Failure if there are no plans, or they are damaged, or from a newer version.
Plans read_plans(const void* data, size_t size);

}  // namespace etwgpu
