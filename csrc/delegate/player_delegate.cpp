#include "delegate/player_delegate.h"

#include "delegate/arguments.h"
#include "delegate/event_tracer.h"
#include "player/device.h"
#include "player/named_data.h"
#include "player/player.h"
#include "player/size_code.h"

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/result.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;

GetData getter(const NamedDataMap* map) {
  return [map](const std::string& key) -> std::optional<Bytes> {
    if (map == nullptr) {
      return std::nullopt;
    }
    Result<FreeableBuffer> found = map->get_data(key);
    if (!found.ok()) {
      return std::nullopt;
    }
    const auto lent = std::make_shared<FreeableBuffer>(std::move(found.get()));
    return Bytes{lent->data(), lent->size(), lent};
  };
}

std::vector<LiveInput> live_inputs(Span<EValue*> args, const Arguments& arguments) {
  std::vector<LiveInput> inputs(arguments.inputs());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (args[i]->isInt()) {
      inputs[i].is_int = true;
      inputs[i].value = arguments.ints()[i];
    } else {
      const Tensor& tensor = args[i]->toTensor();
      inputs[i].shape.assign(tensor.sizes().begin(), tensor.sizes().end());
    }
  }
  return inputs;
}

}  // namespace

PlayerDelegate::PlayerDelegate(const std::string& method, const void* blob, size_t size,
                               const PlayerOptions& options, const NamedDataMap* data)
    : player_(method, blob, size, options, getter(data)),
      arguments_(player_.key_ints(), player_.outputs()) {}

void PlayerDelegate::execute(Span<EValue*> args, EventTracer* tracer) {
  const DeviceLock lock(player_.device());
  arguments_.read(args);
  const Ports& ports =
      player_.prepare(arguments_.key(), [&] { return live_inputs(args, arguments_); });
  arguments_.check_inputs(ports, args);
  arguments_.bind_outputs(ports, args);
  std::optional<DelegateTracer> traced;
  if (tracer != nullptr) {
    traced.emplace(*tracer);
  }
  player_.play(arguments_.feeds(), arguments_.fetches(), traced ? &*traced : nullptr);
  arguments_.store_ints(ports, args);
}

}  // namespace etwgpu
