// Makes buffers readable or writable for the host.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "wgpu_api.h"

namespace etwgpu {

// Maps buffers, all of them in one wait, and unmaps those that nobody has kept.
class Mapper {
 public:
  explicit Mapper(WGPUDevice device) : device_(device) {}
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  void request(WGPUBuffer buffer, WGPUMapMode mode, uint64_t size);

  // Until all buffers are mapped, which they are when submission `index` is over,
  // or when all are if it is null. Throws GpuFailure if one cannot be mapped.
  void wait(const WGPUSubmissionIndex* index);

  const uint8_t* read(WGPUBuffer buffer) const;

  // The buffer stays mapped for writing when the mapper goes.
  uint8_t* keep(WGPUBuffer buffer);

 private:
  struct Request {
    WGPUBuffer buffer = nullptr;
    uint64_t size = 0;
    std::atomic<bool> is_done{false};
    bool is_mapped = false;
    bool is_kept = false;
    std::string message;
  };

  static void receive(WGPUMapAsyncStatus status, WGPUStringView message, void* request,
                      void*);

  bool is_done() const;
  Request& find(WGPUBuffer buffer) const;

  WGPUDevice device_;
  // Pointers, because wgpu holds addresses until it has called back.
  std::vector<std::unique_ptr<Request>> requests_;
};

}  // namespace etwgpu
