// The types of a tensor's elements.

#pragma once

#include <cstdint>

namespace etwgpu {

// Those that the GPU has a storage for; the values are those of ExecuTorch's
// ScalarType, which delegate/codes.h holds them to. A file may have others.
enum class DType : int8_t {
  Byte = 0,
  Char = 1,
  Short = 2,
  Int = 3,
  Long = 4,
  Half = 5,
  Float = 6,
  Bool = 11,
  BFloat16 = 15,
};

}  // namespace etwgpu
