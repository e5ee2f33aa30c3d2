// The player's Tracer over ExecuTorch's, which an ETDump is made from.

#pragma once

#include "player/tracer.h"

#include <executorch/runtime/core/event_tracer.h>

namespace etwgpu {

using executorch::runtime::EventTracer;

// Whether the results of op calls are to be logged, besides times.
inline bool wants_values(EventTracer* tracer) {
  return tracer != nullptr &&
         tracer->event_tracer_debug_level() >=
             executorch::runtime::EventTracerDebugLogLevel::kIntermediateOutputs;
}

class DelegateTracer final : public Tracer {
 public:
  explicit DelegateTracer(EventTracer& tracer) : tracer_(tracer) {}

  void begin(const char* name) override {
    entry_ = tracer_.start_profiling_delegate(
        name, executorch::runtime::kUnsetDelegateDebugIntId);
  }

  void end() override { tracer_.end_profiling_delegate(entry_, nullptr, 0); }

 private:
  EventTracer& tracer_;
  executorch::runtime::EventTracerEntry entry_ = {};
};

}  // namespace etwgpu
