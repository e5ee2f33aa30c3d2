// Element conversion between ExecuTorch tensors and GPU buffers.
//
// A buffer holds f32, f16 or i32 (ir/dtypes.py). The loops are free of branches, so
// that the compiler vectorises them.

#pragma once

#include "player/dtype.h"

#include <cstddef>
#include <cstdint>

namespace etwgpu {

// How a GPU buffer holds elements; the values are those that Python passes.
enum class Storage : uint8_t { F32 = 0, F16 = 1, I32 = 2 };

// Bytes of one element on the GPU.
size_t storage_size(Storage storage);

// Bytes of one element in a tensor; 0 if the GPU has no storage for the type.
size_t scalar_size(DType type);

// Whether a tensor's bytes are the buffer's.
bool is_same_bytes(DType type, Storage storage);

// Whether elements of `type` can be held as `storage`.
bool is_convertible(DType type, Storage storage);

// Host to GPU. Returns `count`, or the index of the first int64 that does not
// fit int32; `target` is then undefined.
size_t to_storage(DType type, Storage storage, const void* source, void* target,
                  size_t count);

// GPU to host.
void from_storage(DType type, Storage storage, const void* source, void* target,
                  size_t count);

}  // namespace etwgpu
