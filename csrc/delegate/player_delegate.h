// One loaded delegate that the player plays.

#pragma once

#include "delegate/arguments.h"
#include "player/player.h"

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <string>

namespace etwgpu {

using executorch::runtime::EventTracer;
using executorch::runtime::NamedDataMap;

class PlayerDelegate {
 public:
  // The blob is read and not kept; the map must outlive this.
  PlayerDelegate(const std::string& method, const void* blob, size_t size,
                 const PlayerOptions& options, const NamedDataMap* data);

  // From any thread; the tracer may be null. Throws Failure.
  void execute(Span<EValue*> args, EventTracer* tracer);

  void reset_state() { player_.reset_state(); }
  const std::string& method() const { return player_.name(); }

 private:
  Player player_;
  Arguments arguments_;  // under the device's lock
};

}  // namespace etwgpu
