// Element conversion between ExecuTorch tensors and GPU buffers.
//
// A buffer holds f32, f16 or i32 (see dtypes.py). All loops are free of
// branches so that the compiler vectorises them.

#pragma once

#include <executorch/runtime/core/portable_type/scalar_type.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace etwgpu {

using executorch::runtime::etensor::ScalarType;

enum class Storage : uint8_t { F32 = 0, F16 = 1, I32 = 2 };

size_t storage_size(Storage storage);

// Bytes of one element outside the GPU; 0 if the type has no place on the GPU.
size_t scalar_size(ScalarType type);

// Whether the bytes are the same on both sides.
bool is_same_bytes(ScalarType type, Storage storage);

// Whether `type` may be held as `storage` at all.
bool is_convertible(ScalarType type, Storage storage);

// Host to GPU. Returns `count`, or the index of the first int64 that does not
// fit int32; `target` is then undefined.
size_t to_storage(ScalarType type, Storage storage, const void* source, void* target,
                  size_t count);

// GPU to host.
void from_storage(ScalarType type, Storage storage, const void* source, void* target,
                  size_t count);

}  // namespace etwgpu
