// The beginning of a text that may be anybody's, for messages.

#pragma once

#include <cstddef>
#include <string>

namespace etwgpu {

// At most `most` bytes of UTF-8, with no half of a character at the end.
inline std::string cut(const std::string& text, size_t most) {
  size_t end = most;
  while (end > 0 && end < text.size() &&
         (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

}  // namespace etwgpu
