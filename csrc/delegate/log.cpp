#include "delegate/log.h"

#include "delegate/codes.h"
#include "delegate/names.h"
#include "player/failure.h"

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/log.h>

#include <string>

namespace etwgpu {
namespace {

std::string single_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t';
    if (!space) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') {
    line.pop_back();
  }
  return line;
}

}  // namespace

// In UTF-8, control characters above 0x7f follow a byte 0xc2.
std::string printable(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string shown;
  unsigned char before = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_high = before == 0xc2 && byte >= 0x80 && byte < 0xa0;
    if (is_high || byte == 0x7f || (byte < 0x20 && c != '\n' && c != '\t')) {
      if (is_high) {
        shown.pop_back();
      }
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      shown += c;
    }
    before = byte;
  }
  return shown;
}

void log_failure(const std::string& where, Code code, const std::string& text) {
  const std::string line = single_line(printable(where + ": " + text));
  ET_LOG(Error, "%s: %s (%s)", kBackendId, line.c_str(),
         executorch::runtime::to_string(error_of(code)));
}

}  // namespace etwgpu
