// What can be set for methods that the player plays (include/executorch_webgpu).

#pragma once

#include "player/player.h"

#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/span.h>

namespace etwgpu {

using executorch::runtime::BackendOption;
using executorch::runtime::Span;

// Those in force: defaults, the environment, set_options(), and `given`, the last of
// which wins. Throws Failure for an unknown name, a wrong type or a bad value.
PlayerOptions current_options(Span<const BackendOption> given);

// For all that is loaded from now on. Whether the states are to be reset.
bool set_options(Span<const BackendOption> given);

// Writes the value of the option that `option` names.
void get_option(BackendOption& option);

}  // namespace etwgpu
