// The player's codes and types are ExecuTorch's by number.

#pragma once

#include "player/dtype.h"
#include "player/failure.h"

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/portable_type/scalar_type.h>

#include <cstdint>

namespace etwgpu {

using executorch::runtime::Error;
using executorch::runtime::etensor::ScalarType;

#define ETWGPU_SAME_CODE(name)                                                 \
  static_assert(                                                               \
      static_cast<uint32_t>(Error::name) == static_cast<uint32_t>(Code::name), \
      "Code::" #name " must be ExecuTorch's")
ETWGPU_SAME_CODE(Ok);
ETWGPU_SAME_CODE(Internal);
ETWGPU_SAME_CODE(InvalidState);
ETWGPU_SAME_CODE(NotSupported);
ETWGPU_SAME_CODE(NotImplemented);
ETWGPU_SAME_CODE(InvalidArgument);
ETWGPU_SAME_CODE(InvalidType);
ETWGPU_SAME_CODE(RegistrationAlreadyRegistered);
ETWGPU_SAME_CODE(NotFound);
ETWGPU_SAME_CODE(MemoryAllocationFailed);
ETWGPU_SAME_CODE(AccessFailed);
ETWGPU_SAME_CODE(InvalidProgram);
ETWGPU_SAME_CODE(InvalidExternalData);
ETWGPU_SAME_CODE(OutOfResources);
ETWGPU_SAME_CODE(DelegateInvalidCompatibility);
ETWGPU_SAME_CODE(DelegateMemoryAllocationFailed);
ETWGPU_SAME_CODE(DelegateInvalidHandle);
#undef ETWGPU_SAME_CODE

#define ETWGPU_SAME_TYPE(name)                                                   \
  static_assert(                                                                 \
      static_cast<int8_t>(ScalarType::name) == static_cast<int8_t>(DType::name), \
      "DType::" #name " must be ExecuTorch's")
ETWGPU_SAME_TYPE(Byte);
ETWGPU_SAME_TYPE(Char);
ETWGPU_SAME_TYPE(Short);
ETWGPU_SAME_TYPE(Int);
ETWGPU_SAME_TYPE(Long);
ETWGPU_SAME_TYPE(Half);
ETWGPU_SAME_TYPE(Float);
ETWGPU_SAME_TYPE(Bool);
ETWGPU_SAME_TYPE(BFloat16);
#undef ETWGPU_SAME_TYPE

constexpr Error error_of(Code code) { return static_cast<Error>(code); }
constexpr Code code_of(Error error) { return static_cast<Code>(error); }
constexpr DType dtype_of(ScalarType type) { return static_cast<DType>(type); }

}  // namespace etwgpu
