// How a failure is told in ExecuTorch's log.

#pragma once

#include "player/failure.h"

#include <string>

namespace etwgpu {

// Names come from files: control characters, which could steer a terminal that shows a
// log, are written as \x1b.
std::string printable(const std::string& text);

// One line of the log: the backend, where it happened, what is wrong, and the code.
void log_failure(const std::string& where, Code code, const std::string& text);

}  // namespace etwgpu
