#include "player/named_data.h"

#include "player/convert.h"
#include "player/device.h"
#include "player/failure.h"
#include "player/hashes.h"
#include "player/plans.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace etwgpu {
namespace {

// Bytes that one write converts, and that may be in flight. Small pieces are also the
// fastest.
constexpr size_t kPiece = 4 << 20;

const char* label(DType dtype) {
  switch (dtype) {
    case DType::Byte:
      return "uint8";
    case DType::Char:
      return "int8";
    case DType::Short:
      return "int16";
    case DType::Int:
      return "int32";
    case DType::Long:
      return "int64";
    case DType::Half:
      return "float16";
    case DType::Float:
      return "float32";
    case DType::Bool:
      return "bool";
    case DType::BFloat16:
      return "bfloat16";
  }
  return "";
}

// As Python prints a tuple.
std::string tuple_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "(" + text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string content_key(DType dtype, const std::vector<uint64_t>& shape,
                        const Bytes& bytes) {
  const std::string head = std::string("torch.") + label(dtype) + tuple_text(shape);
  Sha256 digest;
  digest.add(head.data(), head.size());
  digest.add(bytes.data, bytes.size);
  return "webgpu_" + digest.hex().substr(0, 32);
}

void Uploader::fill(const GpuBuffer& buffer, const PlanConstant& constant) {
  const std::string& key = constant.data_key;
  if (key.empty()) {
    return;
  }
  const std::optional<Bytes> bytes = get_data_(key);
  if (!bytes) {
    throw Failure(Code::NotFound, name_ + ": named data '" + key +
                                      "' must exist; is its .ptd file loaded?");
  }
  // No overflow: the elements fit a buffer (check_plans.cpp).
  uint64_t count = 1;
  for (const uint64_t extent : constant.shape) {
    count *= extent;
  }
  const size_t size = scalar_size(constant.dtype);
  if (bytes->size != count * size) {
    throw Failure(Code::NotFound, "named data '" + key + "' must have " +
                                      std::to_string(count * size) + " bytes, got " +
                                      std::to_string(bytes->size));
  }
  if (is_verified_) {
    const std::string found = content_key(constant.dtype, constant.shape, *bytes);
    if (found != key) {
      throw Failure(Code::DelegateInvalidCompatibility,
                    name_ + ": named data '" + key +
                        "' must have the content that its key is the hash of, got '" +
                        found + "'; the file is damaged");
    }
  }
  const auto* source = static_cast<const uint8_t*>(bytes->data);
  const size_t stored = storage_size(constant.storage);
  const size_t most = kPiece / std::max(size, stored);
  for (uint64_t start = 0; start < count; start += most) {
    const size_t length = static_cast<size_t>(std::min<uint64_t>(most, count - start));
    const size_t words = (length * stored + 3) / 4 * 4;
    const uint8_t* piece = source + start * size;
    if (is_same_bytes(constant.dtype, constant.storage) && words == length * stored) {
      write(buffer, start * stored, piece, words);
      continue;
    }
    scratch_.assign(words, 0);
    const size_t converted =
        to_storage(constant.dtype, constant.storage, piece, scratch_.data(), length);
    if (converted != length) {
      int64_t value;
      std::memcpy(&value, piece + converted * size, sizeof(value));
      throw Failure(Code::DelegateInvalidCompatibility,
                    "int64 values must fit int32, got " + std::to_string(value));
    }
    write(buffer, start * stored, scratch_.data(), words);
  }
}

void Uploader::write(const GpuBuffer& buffer, uint64_t offset, const void* data,
                     size_t size) {
  if (in_flight_ + size > kPiece) {
    finish();
  }
  device_.checked(name_ + ": upload",
                  [&] { device_.write(buffer, offset, data, size); });
  in_flight_ += size;
}

void Uploader::finish() {
  if (in_flight_ > 0) {
    in_flight_ = 0;
    device_.settle(name_ + ": upload");
  }
}

}  // namespace etwgpu
