// Constants from a program's named data to GPU buffers.

#pragma once

#include "player/device.h"
#include "player/plans.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace etwgpu {

// Bytes that are alive as long as their owner is.
struct Bytes {
  const void* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;
};

// Named data by key; nothing if there is none.
using GetData = std::function<std::optional<Bytes>(const std::string& key)>;

// Uploads the constants of one method. With `is_verified`, data must be what its key is
// the hash of.
class Uploader {
 public:
  Uploader(const Device& device, std::string name, GetData get_data, bool is_verified)
      : device_(device),
        name_(std::move(name)),
        get_data_(std::move(get_data)),
        is_verified_(is_verified) {}

  // Fills a zeroed buffer that is large enough. Throws Failure if the data is absent,
  // has the wrong size or is not what its key says; nobody may have the buffer then.
  void fill(const GpuBuffer& buffer, const PlanConstant& constant);

  // Waits until all is on the GPU.
  void finish();

  bool is_verified() const { return is_verified_; }

 private:
  void write(const GpuBuffer& buffer, uint64_t offset, const void* data, size_t size);

  const Device& device_;
  std::string name_;
  GetData get_data_;
  bool is_verified_;
  size_t in_flight_ = 0;  // bytes of which wgpu may hold a copy
  std::vector<uint8_t> scratch_;
};

// The key that data of a type and shape must have (ir/named_data.py).
std::string content_key(DType dtype, const std::vector<uint64_t>& shape,
                        const Bytes& bytes);

}  // namespace etwgpu
