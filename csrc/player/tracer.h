// Who is told how long each dispatch took.

#pragma once

namespace etwgpu {

class Tracer {
 public:
  virtual ~Tracer() = default;

  // A dispatch begins, and is over; never two at a time.
  virtual void begin(const char* name) = 0;
  virtual void end() = 0;
};

}  // namespace etwgpu
