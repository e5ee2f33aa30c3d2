// The words for what a kernel reports.

#pragma once

#include <cstdint>
#include <string>

namespace etwgpu {

// The status buffer (wgsl/prelude/status.wgsl), [kind, call, a, b], as the requirement
// that was not met and the value; "" if no kernel has reported anything.
std::string describe_report(const int32_t (&status)[4]);

}  // namespace etwgpu
