#include "player/report.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace etwgpu {
namespace {

// The kinds in wgsl/prelude/status.wgsl: BAD_INDEX is kIndex.
enum Kind : int32_t {
  kNone = 0,
  kIndex = 1,
  kSum = 3,
  kDifference = 5,
  kProduct = 7,
  kShift = 9,
  kNumber = 11,
  kTotal = 13,
  kWhole = 15,
  kDivisor = 17,
};

std::string beyond(const std::string& value) {
  return "an int64 must fit int32 on the GPU, got " + value;
}

std::string number(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
  return text;
}

}  // namespace

std::string describe_report(const int32_t (&status)[4]) {
  const std::string a = std::to_string(status[2]);
  const std::string b = std::to_string(status[3]);
  switch (status[0]) {
    case kNone:
      return "";
    case kIndex:
      return "index must be in [0, " + b + "), got " + a;
    case kSum:
      return beyond(a + " + " + b);
    case kDifference:
      return beyond(a + " - " + b);
    case kProduct:
      return beyond(a + " * " + b);
    case kShift:
      return beyond(a + " << " + b);
    case kNumber:
      return beyond(number(status[2]));
    case kTotal: {
      const uint64_t low = static_cast<uint32_t>(status[2]);
      const uint64_t high = static_cast<uint32_t>(status[3]);
      return beyond(std::to_string(static_cast<int64_t>(high << 32 | low)));
    }
    case kWhole:
      return beyond("a larger product");
    case kDivisor:
      return "an integer must not be divided by 0, got 0";
    default:
      return "a report must be known, got " + std::to_string(status[0]);
  }
}

}  // namespace etwgpu
