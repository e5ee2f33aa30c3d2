#include "player/sha256_x86.h"

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

namespace etwgpu {
namespace {

__m128i load(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

void store(void* to, __m128i value) {
  _mm_storeu_si128(static_cast<__m128i*>(to), value);
}

}  // namespace

bool has_sha_instructions() {
  constexpr unsigned kSsse3 = 1u << 9;
  constexpr unsigned kSse41 = 1u << 19;
  constexpr unsigned kSha = 1u << 29;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSsse3) == 0 || (c & kSse41) == 0) {
    return false;
  }
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

__attribute__((target("sha,sse4.1,ssse3"))) void mix_x86(std::array<uint32_t, 8>& state,
                                                         const uint8_t* blocks,
                                                         size_t count,
                                                         const uint32_t* rounds) {
  // The instructions want the state as a, b, e, f and c, d, g, h, from the last lane to
  // the first, and each word of a block turned around.
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(load(&state[0]), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(load(&state[4]), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i words[4];
    for (int i = 0; i < 4; ++i) {
      words[i] = _mm_shuffle_epi8(load(blocks + 16 * i), swap);
    }
    // Four rounds at a time, with four words, which from the fifth time on are made of
    // the last sixteen.
    for (int i = 0; i < 16; ++i) {
      __m128i& word = words[i % 4];
      if (i >= 4) {
        const __m128i last = words[(i + 3) % 4];
        const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(word, words[(i + 1) % 4]),
                          _mm_alignr_epi8(last, words[(i + 2) % 4], 4));
        word = _mm_sha256msg2_epu32(sum, last);
      }
      const __m128i keyed = _mm_add_epi32(word, load(rounds + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  store(&state[0], _mm_blend_epi16(feba, dchg, 0xF0));
  store(&state[4], _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace etwgpu

#else

namespace etwgpu {

bool has_sha_instructions() { return false; }

void mix_x86(std::array<uint32_t, 8>&, const uint8_t*, size_t, const uint32_t*) {}

}  // namespace etwgpu

#endif
