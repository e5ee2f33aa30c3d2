// Who owns what a wgpu callback writes to.
//
// The state of a callback is shared: the caller holds one reference and wgpu another,
// from lend() until it calls back, which it does exactly once. So a callback that
// comes late, after an early return or an exception, writes to memory that is alive.

#pragma once

#include <memory>
#include <utility>

namespace etwgpu {

// wgpu's reference, as the userdata of a callback.
template <typename State>
void* lend(std::shared_ptr<State> state) {
  return new std::shared_ptr<State>(std::move(state));
}

// Takes wgpu's reference back; called once, by the callback.
template <typename State>
std::shared_ptr<State> take_back(void* userdata) {
  const std::unique_ptr<std::shared_ptr<State>> lent(
      static_cast<std::shared_ptr<State>*>(userdata));
  return std::move(*lent);
}

}  // namespace etwgpu
