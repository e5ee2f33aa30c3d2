#include "player/convert.h"

#include "player/dtype.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace etwgpu {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The float multiplication renormalises subnormal halves exactly.
float half_to_float(uint16_t half) {
  const uint32_t wide = static_cast<uint32_t>(half) << 16;
  const uint32_t sign = wide & 0x80000000u;
  const uint32_t twice = wide + wide;
  const float normal = float_of((twice >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = float_of((twice >> 17) | (126u << 23)) - 0.5f;
  return float_of(sign | (twice < (1u << 27) ? bits_of(subnormal) : bits_of(normal)));
}

// Round to nearest, ties to even: the addition of a power of two that depends
// on the exponent leaves exactly the half's bits at the end of the mantissa.
uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t twice = bits + bits;
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t bias = std::max(twice & 0xFF000000u, 0x71000000u);
  const float magnitude = float_of(bits & 0x7FFFFFFFu);
  const float scaled = (magnitude * 0x1.0p+112f) * 0x1.0p-110f;
  const uint32_t rounded = bits_of(float_of((bias >> 1) + 0x07800000u) + scaled);
  const uint32_t finite = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
  return static_cast<uint16_t>((sign >> 16) | (twice > 0xFF000000u ? 0x7E00u : finite));
}

float bfloat16_to_float(uint16_t value) {
  return float_of(static_cast<uint32_t>(value) << 16);
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}

template <typename From, typename To, typename Convert>
void each(const void* source, void* target, size_t count, Convert convert) {
  const From* from = static_cast<const From*>(source);
  To* to = static_cast<To*>(target);
  for (size_t i = 0; i < count; ++i) {
    to[i] = convert(from[i]);
  }
}

template <typename From, typename To>
void cast(const void* source, void* target, size_t count) {
  each<From, To>(source, target, count,
                 [](From value) { return static_cast<To>(value); });
}

// int64 to int32, in blocks: the check costs one branch per block, and the index of a
// value that does not fit is still found.
size_t narrow(const void* source, void* target, size_t count) {
  constexpr size_t kBlock = 4096;
  const int64_t* from = static_cast<const int64_t*>(source);
  int32_t* to = static_cast<int32_t*>(target);
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t end = std::min(start + kBlock, count);
    uint64_t overflow = 0;
    for (size_t i = start; i < end; ++i) {
      overflow |= (static_cast<uint64_t>(from[i]) + 0x80000000u) >> 32;
      to[i] = static_cast<int32_t>(from[i]);
    }
    if (overflow != 0) {
      for (size_t i = start; i < end; ++i) {
        if (from[i] != static_cast<int32_t>(from[i])) {
          return i;
        }
      }
    }
  }
  return count;
}

}  // namespace

size_t storage_size(Storage storage) { return storage == Storage::F16 ? 2 : 4; }

size_t scalar_size(DType type) {
  switch (type) {
    case DType::Bool:
    case DType::Byte:
    case DType::Char:
      return 1;
    case DType::Short:
    case DType::Half:
    case DType::BFloat16:
      return 2;
    case DType::Int:
    case DType::Float:
      return 4;
    case DType::Long:
      return 8;
    default:
      return 0;
  }
}

bool is_same_bytes(DType type, Storage storage) {
  switch (storage) {
    case Storage::F32:
      return type == DType::Float;
    case Storage::F16:
      return type == DType::Half;
    case Storage::I32:
      return type == DType::Int;
  }
  return false;
}

bool is_convertible(DType type, Storage storage) {
  switch (type) {
    case DType::Float:
    case DType::BFloat16:
      return storage == Storage::F32;
    case DType::Half:
      return storage != Storage::I32;
    default:
      return scalar_size(type) != 0 && storage == Storage::I32;
  }
}

size_t to_storage(DType type, Storage storage, const void* source, void* target,
                  size_t count) {
  if (is_same_bytes(type, storage)) {
    std::memcpy(target, source, count * storage_size(storage));
    return count;
  }
  switch (type) {
    case DType::Half:
      each<uint16_t, float>(source, target, count, half_to_float);
      return count;
    case DType::BFloat16:
      each<uint16_t, float>(source, target, count, bfloat16_to_float);
      return count;
    case DType::Long:
      return narrow(source, target, count);
    case DType::Short:
      cast<int16_t, int32_t>(source, target, count);
      return count;
    case DType::Char:
      cast<int8_t, int32_t>(source, target, count);
      return count;
    default:
      cast<uint8_t, int32_t>(source, target, count);
      return count;
  }
}

void from_storage(DType type, Storage storage, const void* source, void* target,
                  size_t count) {
  if (is_same_bytes(type, storage)) {
    std::memcpy(target, source, count * storage_size(storage));
    return;
  }
  switch (type) {
    case DType::Half:
      return each<float, uint16_t>(source, target, count, float_to_half);
    case DType::BFloat16:
      return each<float, uint16_t>(source, target, count, float_to_bfloat16);
    case DType::Long:
      return cast<int32_t, int64_t>(source, target, count);
    case DType::Short:
      return cast<int32_t, int16_t>(source, target, count);
    case DType::Char:
      return cast<int32_t, int8_t>(source, target, count);
    case DType::Byte:
      return cast<int32_t, uint8_t>(source, target, count);
    default:
      return each<int32_t, uint8_t>(source, target, count, [](int32_t value) {
        return static_cast<uint8_t>(value != 0);
      });
  }
}

}  // namespace etwgpu
