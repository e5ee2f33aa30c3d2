#pragma once

#include <cstdint>
#include <string>

namespace etwgpu {

// What a kernel reported in its status buffer (wgsl/prelude/status.wgsl): the words that
// follow the call, empty if it reported nothing.
std::string describe_report(const int32_t (&status)[4]);

}  // namespace etwgpu
