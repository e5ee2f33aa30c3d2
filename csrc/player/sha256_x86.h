// SHA-256 with the instructions that x86 processors have for it: four times as fast.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace etwgpu {

// Whether mix_x86() may be called.
bool has_sha_instructions();

// Mixes blocks of 64 bytes into a state, given the 64 constants of the rounds.
void mix_x86(std::array<uint32_t, 8>& state, const uint8_t* blocks, size_t count,
             const uint32_t* rounds);

}  // namespace etwgpu
