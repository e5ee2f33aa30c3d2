// Checksums: CRC-32 finds damage, SHA-256 also what was made to do harm.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace etwgpu {

// As zlib computes it.
uint32_t crc32(const uint8_t* data, size_t size);

class Sha256 {
 public:
  void add(const void* data, size_t size);
  // The digest in hexadecimal; nothing can be added after it.
  std::string hex();

 private:
  void mix(const uint8_t* blocks, size_t count);
  void mix_one(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> rest_ = {};
  uint64_t size_ = 0;
};

}  // namespace etwgpu
