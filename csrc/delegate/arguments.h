// The arguments of a delegate call, between ExecuTorch's values and a plan's ports.

#pragma once

#include "player/replay.h"

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/span.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace etwgpu {

using executorch::runtime::EValue;
using executorch::runtime::Span;

// Of one call at a time; kept between calls, so that memory is allocated once. All that
// does not fit throws Failure.
class Arguments {
 public:
  Arguments() = default;
  // By input, whether it is an int that decides the plan; and the number of outputs.
  Arguments(std::vector<bool> is_key, size_t outputs);

  // Takes the inputs, of which key() and ints() then tell.
  void read(Span<EValue*> args);

  // Holds the inputs to the ports of the plan that was found for them.
  void check_inputs(const Ports& ports, Span<EValue*> args) const;

  // Gives the outputs their live shapes.
  void bind_outputs(const Ports& ports, Span<EValue*> args);

  // Stores the outputs that are ints.
  void store_ints(const Ports& ports, Span<EValue*> args) const;

  // The scalar types of all arguments, -1 of an int; those of tensors that are not
  // row-major throw Failure.
  std::vector<int> types(Span<EValue*> args) const;

  size_t inputs() const { return inputs_; }
  size_t outputs() const { return outputs_; }
  // The live sizes, and the ints that decide the plan.
  const std::vector<int64_t>& key() const { return key_; }
  // By input, its value if it is an int.
  const std::vector<int64_t>& ints() const { return ints_; }
  const Feeds& feeds() const { return feeds_; }
  const Fetches& fetches() const { return fetches_; }

 private:
  size_t inputs_ = 0;
  size_t outputs_ = 0;
  std::vector<bool> is_key_;
  std::vector<int64_t> key_;
  std::vector<int64_t> ints_;
  Feeds feeds_;
  Fetches fetches_;
};

}  // namespace etwgpu
